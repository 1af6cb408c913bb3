#include "kernels/permute/permute.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/random_data.h"

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

// Both implementations on one routing.
void ExpectAgreement(const PermuteShape& shape, const std::vector<int32_t>& ids) {
  ASSERT_TRUE(ValidatePermute(shape).ok());
  std::vector<float> weights(ids.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = static_cast<float>(i) + 0.5f;
  }
  PairBuffer expected(shape);
  PairBuffer actual(shape);
  PermuteReference(shape, ids, weights, expected.list());
  Permute(shape, ids, weights, actual.list());
  EXPECT_EQ(actual.offsets, expected.offsets);
  const auto pairs = static_cast<size_t>(expected.list().num_pairs());
  EXPECT_THAT(std::span(actual.token).first(pairs),
              ElementsAreArray(std::span(expected.token).first(pairs)));
  EXPECT_THAT(std::span(actual.weight).first(pairs),
              ElementsAreArray(std::span(expected.weight).first(pairs)));
  EXPECT_EQ(actual.pair_of, expected.pair_of);
}

TEST(PermuteTest, GroupsASmallRoutingByHand) {
  const PermuteShape shape = {
      .num_tokens = 2, .top_k = 2, .num_experts = 4, .first_expert = 1, .num_local_experts = 3};
  PairBuffer buffer(shape);
  Permute(shape, std::vector<int32_t>{3, 0, 1, 3}, std::vector<float>{0.1f, 0.2f, 0.3f, 0.4f},
          buffer.list());
  EXPECT_THAT(buffer.offsets, ElementsAre(0, 1, 1, 3));
  EXPECT_THAT(std::span(buffer.token).first(3), ElementsAre(1, 0, 1));
  EXPECT_THAT(std::span(buffer.weight).first(3), ElementsAre(0.3f, 0.1f, 0.4f));
  EXPECT_THAT(buffer.pair_of, ElementsAre(1, -1, 0, 2));
}

TEST(PermuteTest, AgreesWithTheReferenceOnRandomRoutings) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const PermuteShape shape = {.num_tokens = static_cast<int64_t>(1 + seed * 3),
                                .top_k = 4,
                                .num_experts = 24,
                                .first_expert = static_cast<int64_t>(seed % 3 * 8),
                                .num_local_experts = 8};
    ExpectAgreement(shape, RandomExperts(shape.num_tokens, 4, 24, seed));
  }
}

TEST(PermuteTest, LeavesOutSlotsThatAreNotUsed) {
  const PermuteShape shape = {
      .num_tokens = 2, .top_k = 2, .num_experts = 2, .first_expert = 0, .num_local_experts = 2};
  ExpectAgreement(shape, {1, -1, -1, 0});
}

TEST(PermuteTest, HandlesAllToOneAnIdleRankAndNoTokens) {
  PermuteShape shape = {
      .num_tokens = 5, .top_k = 1, .num_experts = 4, .first_expert = 0, .num_local_experts = 4};
  ExpectAgreement(shape, {2, 2, 2, 2, 2});
  shape.num_local_experts = 2;
  ExpectAgreement(shape, {2, 2, 2, 2, 2});
  shape.num_tokens = 0;
  ExpectAgreement(shape, {});
}

TEST(PermuteTest, RefusesExpertsOutsideTheModel) {
  EXPECT_EQ(ValidatePermute({.num_tokens = 1,
                             .top_k = 1,
                             .num_experts = 4,
                             .first_expert = 3,
                             .num_local_experts = 2})
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
