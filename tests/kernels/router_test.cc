#include "kernels/router/router.h"

#include <cmath>
#include <string>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::FloatNear;

struct Routing {
  std::vector<int32_t> expert_ids;
  std::vector<float> weights;
};

Routing Reference(const RouterShape& shape, std::span<const float> scores,
                  std::span<const float> bias = {}) {
  const auto slots = static_cast<size_t>(shape.num_tokens * shape.top_k);
  Routing routing = {std::vector<int32_t>(slots), std::vector<float>(slots)};
  RouterReference(shape, scores, bias, routing.expert_ids, routing.weights);
  return routing;
}

TEST(RouterTest, WeighsTheBestBySoftmaxOverAllByHand) {
  const RouterShape shape = {.num_tokens = 1, .num_experts = 3, .top_k = 2};
  const std::vector<float> scores = {std::log(1.0f), std::log(5.0f), std::log(2.0f)};
  const Routing routing = Reference(shape, scores);
  EXPECT_THAT(routing.expert_ids, ElementsAre(1, 2));
  EXPECT_THAT(routing.weights, ElementsAre(FloatEq(5.0f / 8), FloatEq(2.0f / 8)));
}

TEST(RouterTest, RenormalizesAndScalesTheChosen) {
  RouterShape shape = {.num_tokens = 1, .num_experts = 3, .top_k = 2};
  const std::vector<float> scores = {std::log(1.0f), std::log(6.0f), std::log(2.0f)};
  shape.router.renormalize = true;
  shape.router.scaling_factor = 2.5;
  EXPECT_THAT(Reference(shape, scores).weights,
              ElementsAre(FloatEq(2.5f * 6 / 8), FloatEq(2.5f * 2 / 8)));
  shape.router.renormalize = false;
  shape.router.softmax_after_top_k = true;
  shape.router.scaling_factor = 1;
  EXPECT_THAT(Reference(shape, scores).weights, ElementsAre(FloatEq(0.75f), FloatEq(0.25f)));
}

TEST(RouterTest, LetsTheBiasChooseButNotWeigh) {
  RouterShape shape = {.num_tokens = 1, .num_experts = 3, .top_k = 1};
  shape.router = {.scoring = RouterScoring::kSigmoid, .has_bias = true};
  const Routing routing =
      Reference(shape, std::vector<float>{0, 2, -1}, std::vector<float>{0, 0, 1});
  EXPECT_THAT(routing.expert_ids, ElementsAre(2));
  EXPECT_THAT(routing.weights, ElementsAre(FloatEq(1 / (1 + std::exp(1.0f)))));
}

TEST(RouterTest, ChoosesWithinTheBestGroups) {
  RouterShape shape = {.num_tokens = 1, .num_experts = 6, .top_k = 2};
  shape.router = {.scoring = RouterScoring::kSigmoid, .num_groups = 3, .top_k_groups = 1};
  // The best expert is in group 0, the best pair in group 2.
  EXPECT_THAT(Reference(shape, std::vector<float>{3, -9, 0, 0, 2, 2}).expert_ids,
              ElementsAre(4, 5));
  shape.router.scoring = RouterScoring::kSoftmax;  // A group is worth its best.
  EXPECT_THAT(Reference(shape, std::vector<float>{3, -9, 0, 0, 2, 2}).expert_ids,
              ElementsAre(0, 1));
}

TEST(RouterTest, PrefersTheLowerOfEqualExperts) {
  const RouterShape shape = {.num_tokens = 1, .num_experts = 5, .top_k = 3};
  EXPECT_THAT(Reference(shape, std::vector<float>{1, 2, 1, 2, 1}).expert_ids, ElementsAre(1, 3, 0));
}

TEST(RouterTest, KeepsABatchToTheExpertsAmongItsBest) {
  RouterShape shape = {
      .num_tokens = 2, .num_experts = 4, .top_k = 2, .router = {}, .opportunistic_keep = 1};
  // Best of token 0 is expert 0, of token 1 expert 3: both tokens use these two only.
  const Routing routing = Reference(shape, std::vector<float>{9, 8, 7, 1, 1, 2, 3, 9});
  EXPECT_THAT(routing.expert_ids, ElementsAre(0, 3, 3, 0));
  // One token keeps one expert: its second slot is not used.
  shape.num_tokens = 1;
  const Routing single = Reference(shape, std::vector<float>{9, 8, 7, 1});
  EXPECT_THAT(single.expert_ids, ElementsAre(0, -1));
  EXPECT_EQ(single.weights[1], 0);
}

TEST(RouterTest, AgreesWithItsReferenceUnderEveryRule) {
  struct Rule {
    RouterDims dims;
    int64_t keep;
  };
  const std::vector<Rule> rules = {
      {{}, 0},
      {{.renormalize = true}, 0},
      {{.renormalize = true}, 3},
      {{.has_bias = true}, 0},
      {{.softmax_after_top_k = true}, 0},
      {{.scoring = RouterScoring::kSigmoid,
        .has_bias = true,
        .num_groups = 4,
        .top_k_groups = 2,
        .renormalize = true,
        .scaling_factor = 2.5},
       0},
      {{.scoring = RouterScoring::kSigmoid, .has_bias = true, .num_groups = 4, .top_k_groups = 2},
       2},
      {{.num_groups = 4, .top_k_groups = 3}, 0},
  };
  for (const NamedPool& named : EveryPool()) {
    for (const Rule& rule : rules) {
      for (const int64_t num_tokens : {0, 1, 19}) {
        for (const int64_t num_experts : {12, 60, 128}) {
          const RouterShape shape = {.num_tokens = num_tokens,
                                     .num_experts = num_experts,
                                     .top_k = 6,
                                     .router = rule.dims,
                                     .opportunistic_keep = rule.keep};
          ASSERT_TRUE(ValidateRouter(shape).ok()) << ValidateRouter(shape);
          // Multiples of 1/64 repeat: ties are common, and no rounding breaks them.
          std::vector<float> scores;
          for (int64_t i = 0; i < num_tokens * num_experts; ++i) {
            const float unit = CounterUniform(3, 5, static_cast<uint64_t>(i));
            scores.push_back(std::floor(unit * 512) / 64 - 4);
          }
          std::vector<float> bias;
          for (int64_t e = 0; e < num_experts; ++e) {
            bias.push_back(CounterUniform(9, 1, static_cast<uint64_t>(e)) * 0.3f);
          }
          const Routing reference = Reference(shape, scores, bias);
          Routing routing = {std::vector<int32_t>(reference.expert_ids.size(), -7),
                             std::vector<float>(reference.weights.size(), NAN)};
          Router(shape, scores, bias, routing.expert_ids, routing.weights, *named.pool);
          EXPECT_EQ(routing.expert_ids, reference.expert_ids) << named.name;
          for (size_t i = 0; i < routing.weights.size(); ++i) {
            ASSERT_THAT(routing.weights[i],
                        FloatNear(reference.weights[i], 2e-6f * reference.weights[i] + 1e-9f));
          }
        }
      }
    }
  }
}

TEST(RouterTest, RefusesGroupsThatDoNotFit) {
  RouterShape shape = {.num_tokens = 1, .num_experts = 10, .top_k = 2};
  shape.router.num_groups = 4;
  EXPECT_FALSE(ValidateRouter(shape).ok());
  shape.router.num_groups = 10;  // One expert each, one group: not enough for two.
  EXPECT_FALSE(ValidateRouter(shape).ok());
  shape.router.top_k_groups = 2;
  EXPECT_TRUE(ValidateRouter(shape).ok());
  shape.top_k = 11;
  EXPECT_FALSE(ValidateRouter(shape).ok());
}

}  // namespace
}  // namespace lastflop
