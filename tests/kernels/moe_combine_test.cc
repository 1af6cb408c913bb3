#include "kernels/moe_combine/moe_combine.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tolerance.h"
#include "tests/kernels/moe_case.h"

namespace lastflop {
namespace {

TEST(MoeCombineReferenceTest, ComputesASmallCaseByHand) {
  // Token 0 has pairs 1 and 0, token 1 has none on this rank.
  std::vector<int32_t> offsets = {0, 1, 2};
  std::vector<int32_t> token = {0, 0};
  std::vector<float> weight = {0.5f, 2.0f};
  std::vector<int32_t> pair_of = {1, 0, -1, -1};
  const CombineShape shape = {.num_tokens = 2, .top_k = 2, .hidden_size = 1, .add_shared = true};
  const std::vector<Bf16> in = {ToBf16(10), ToBf16(3)};
  const std::vector<Bf16> shared = {ToBf16(1), ToBf16(7)};
  std::vector<float> out(2);
  MoeCombineReference(shape, {offsets, token, weight, pair_of}, in, shared, out);
  EXPECT_THAT(out, testing::ElementsAre(1 + 0.5f * 10 + 2 * 3, 7));
}

TEST(MoeCombineTest, AgreesWithTheReferenceOnRandomInput) {
  for (const int64_t hidden : {1, 40, 1024, 1500}) {
    const PermuteShape permute = {
        .num_tokens = 9, .top_k = 3, .num_experts = 8, .first_expert = 2, .num_local_experts = 4};
    PairBuffer buffer(permute);
    std::vector<float> weights(27);
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = static_cast<float>(i + 1) / 27.0f;
    }
    Permute(permute, RandomExperts(9, 3, 8, /*seed=*/3), weights, buffer.list());
    const std::vector<Bf16> in = RandomBf16(static_cast<size_t>(27 * hidden), /*seed=*/4);
    const std::vector<Bf16> shared = RandomBf16(static_cast<size_t>(9 * hidden), /*seed=*/5);
    for (const bool add_shared : {false, true}) {
      const CombineShape shape = {
          .num_tokens = 9, .top_k = 3, .hidden_size = hidden, .add_shared = add_shared};
      std::vector<float> reference(static_cast<size_t>(9 * hidden));
      MoeCombineReference(shape, buffer.list(), in, shared, reference);
      for (const PoolCase& pool_case : AllPools()) {
        const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
        std::vector<Bf16> out = PoisonedBf16(reference.size());
        MoeCombine(shape, buffer.list(), in, shared, out, *pool);
        EXPECT_LE(RowError(out, reference, hidden), Tolerance(1, 4)) << "hidden " << hidden;
      }
    }
  }
}

TEST(MoeCombineTest, IsExactOnSmallIntegers) {
  std::vector<int32_t> offsets = {0, 2};
  std::vector<int32_t> token = {0, 1};
  std::vector<float> weight = {1, 2};
  std::vector<int32_t> pair_of = {0, 1};
  const CombineShape shape = {.num_tokens = 2, .top_k = 1, .hidden_size = 20};
  const std::vector<Bf16> in = RandomIntegers(40, -9, 9, /*seed=*/6);
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    std::vector<Bf16> out = PoisonedBf16(40);
    MoeCombine(shape, {offsets, token, weight, pair_of}, in, {}, out, *pool);
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(ToFloat(out[i]), ToFloat(in[i]) * (i < 20 ? 1.0f : 2.0f));
    }
  }
}

}  // namespace
}  // namespace lastflop
