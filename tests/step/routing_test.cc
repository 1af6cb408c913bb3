#include "step/routing.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

Routing WithDistribution(Distribution distribution, uint64_t seed = 7) {
  Routing routing;
  routing.distribution = distribution;
  routing.seed = seed;
  return routing;
}

std::vector<int32_t> Draw(const Model& model, const Routing& routing, int64_t num_tokens,
                          int layer = 3, int64_t draw = 0, int64_t keep = 0) {
  const auto scores = MakeRouterScores(model, routing, num_tokens, layer, draw);
  EXPECT_TRUE(scores.ok()) << scores.status();
  return ChooseExperts(model, *scores, num_tokens, keep);
}

Model WithExperts(int64_t num_experts, int64_t top_k) {
  Model model = QwenModel();
  model.num_experts = num_experts;
  model.top_k = top_k;
  return model;
}

void ExpectTokensHaveDistinctExperts(const Model& model, const std::vector<int32_t>& experts) {
  for (auto first = experts.begin(); first != experts.end(); first += model.top_k) {
    const std::set<int32_t> unique(first, first + model.top_k);
    EXPECT_EQ(unique.size(), static_cast<size_t>(model.top_k));
  }
}

TEST(RoutingTest, BalancedGivesEveryRankTheSamePairs) {
  const Model model = WithExperts(256, 8);
  for (int64_t draw = 0; draw < 20; ++draw) {
    const auto experts = Draw(model, WithDistribution(Distribution::kBalanced), 8, 3, draw);
    ExpectTokensHaveDistinctExperts(model, experts);
    for (const ExpertLoad& load : LoadPerRank(model, experts, 16)) {
      EXPECT_EQ(load.pairs, 4);
    }
  }
}

TEST(RoutingTest, BalancedGivesEveryExpertFloorOrCeil) {
  for (const int64_t num_tokens : {1, 3, 8, 33, 100}) {
    const Model model = WithExperts(60, 7);
    const auto experts = Draw(model, WithDistribution(Distribution::kBalanced), num_tokens);
    ExpectTokensHaveDistinctExperts(model, experts);
    for (const ExpertLoad& load : LoadPerRank(model, experts, 60)) {
      EXPECT_GE(load.pairs, static_cast<double>(num_tokens * 7 / 60));
      EXPECT_LE(load.pairs, static_cast<double>((num_tokens * 7 + 59) / 60));
    }
  }
}

TEST(RoutingTest, BalancedIsLevelUnderAGroupedRouterToo) {
  const Model model = DeepSeekModel();
  const auto experts = Draw(model, WithDistribution(Distribution::kBalanced), 64);
  ExpectTokensHaveDistinctExperts(model, experts);
  for (const ExpertLoad& load : LoadPerRank(model, experts, 256)) {
    EXPECT_EQ(load.pairs, 2);
  }
}

TEST(RoutingTest, ExpectedUniqueExpertsHaveTheirClosedForm) {
  for (const auto& [tokens, unique] :
       {std::pair<int64_t, double>{1, 8.0}, {8, 59.5}, {32, 188.2}, {128, 358.1}}) {
    EXPECT_NEAR(ExpectedUniqueExperts(384, 8, tokens), unique, 0.05);
  }
}

TEST(RoutingTest, UniformDrawsTouchTheExpectedExperts) {
  const Model model = KimiModel();
  for (const int64_t num_tokens : {1, 8, 32, 128}) {
    double unique = 0;
    constexpr int kDraws = 100;
    for (int64_t draw = 0; draw < kDraws; ++draw) {
      const auto experts =
          Draw(model, WithDistribution(Distribution::kUniform), num_tokens, 3, draw);
      unique += LoadPerRank(model, experts, 1)[0].unique_experts / kDraws;
    }
    const double expected = ExpectedUniqueExperts(384, 8, num_tokens);
    EXPECT_NEAR(unique, expected, 0.01 * expected);
  }
}

TEST(RoutingTest, AllToOneSendsEveryTokenToTheSameExperts) {
  for (const Model& model : {KimiModel(), DeepSeekModel()}) {
    const auto experts = Draw(model, WithDistribution(Distribution::kAllToOne), 50);
    ExpectTokensHaveDistinctExperts(model, experts);
    const std::set<int32_t> unique(experts.begin(), experts.end());
    EXPECT_EQ(unique.size(), 8U);
  }
}

// Share of pairs that the most popular experts get, over many draws of one layer, best first.
std::vector<double> Shares(const Model& model, const Routing& routing) {
  std::vector<double> shares(static_cast<size_t>(model.num_experts), 0);
  for (int64_t draw = 0; draw < 200; ++draw) {
    for (const int32_t expert : Draw(model, routing, 64, 3, draw)) {
      shares[static_cast<size_t>(expert)] += 1.0 / (200 * 64 * 8);
    }
  }
  std::sort(shares.begin(), shares.end(), std::greater<>());
  return shares;
}

TEST(RoutingTest, ZipfFollowsPopularityWithAndWithoutGroups) {
  const Model grouped = DeepSeekModel();
  Model plain = grouped;
  plain.router.num_groups = 1;
  plain.router.top_k_groups = 1;
  const std::vector<double> free = Shares(plain, WithDistribution(Distribution::kZipf));
  const std::vector<double> limited = Shares(grouped, WithDistribution(Distribution::kZipf));
  EXPECT_GT(free[0], 0.09);  // In most tokens: a share of 1/8 would be in every one.
  EXPECT_LT(free[255], free[0] / 30);
  // The groups bend the distribution a little and keep its shape.
  EXPECT_NEAR(std::accumulate(limited.begin(), limited.begin() + 32, 0.0),
              std::accumulate(free.begin(), free.begin() + 32, 0.0), 0.08);
}

TEST(RoutingTest, PopularityIsPermutedPerLayerAndNotPerDraw) {
  const Model model = KimiModel();
  const Routing routing = WithDistribution(Distribution::kZipf);
  const auto most_popular = [&](int layer, int64_t first_draw) {
    std::vector<int> counts(384, 0);
    for (int64_t draw = first_draw; draw < first_draw + 20; ++draw) {
      for (const int32_t expert : Draw(model, routing, 64, layer, draw)) {
        ++counts[static_cast<size_t>(expert)];
      }
    }
    return std::max_element(counts.begin(), counts.end()) - counts.begin();
  };
  EXPECT_EQ(most_popular(3, 0), most_popular(3, 100));
  EXPECT_NE(most_popular(3, 0), most_popular(4, 0));
}

TEST(RoutingTest, TraceFollowsItsCounts) {
  const Model model = WithExperts(16, 2);
  Routing routing = WithDistribution(Distribution::kTrace);
  routing.trace_popularity.assign(1, std::vector<double>(16, 0));
  routing.trace_popularity[0][4] = 100;
  routing.trace_popularity[0][9] = 100;
  for (const int32_t expert : Draw(model, routing, 32)) {
    EXPECT_TRUE(expert == 4 || expert == 9) << expert;
  }
  routing.trace_popularity.assign(3, std::vector<double>(16, 1));
  EXPECT_FALSE(MakeRouterScores(model, routing, 1, 0, 0).ok());
}

TEST(RoutingTest, EqualSeedsGiveEqualDrawsAndOtherDrawsDiffer) {
  const Model model = KimiModel();
  const Routing routing = WithDistribution(Distribution::kUniform);
  EXPECT_EQ(Draw(model, routing, 8, 3, 5), Draw(model, routing, 8, 3, 5));
  EXPECT_NE(Draw(model, routing, 8, 3, 5), Draw(model, routing, 8, 3, 6));
  EXPECT_NE(Draw(model, WithDistribution(Distribution::kUniform, 8), 8, 3, 5),
            Draw(model, routing, 8, 3, 5));
}

TEST(RoutingTest, OpportunisticChoiceTouchesFewerExperts) {
  const Model model = KimiModel();
  const Routing routing = WithDistribution(Distribution::kUniform);
  const auto all = Draw(model, routing, 16, 3, 0);
  const auto kept = Draw(model, routing, 16, 3, 0, 4);
  const double unique_all = LoadPerRank(model, all, 1)[0].unique_experts;
  const ExpertLoad load = LoadPerRank(model, kept, 1)[0];
  EXPECT_LT(load.unique_experts, 0.7 * unique_all);
  EXPECT_EQ(load.pairs, 16 * 8);  // 16 tokens have more than 8 experts among their best four.
  // One token has but its own best four.
  const auto alone = Draw(model, routing, 1, 3, 0, 4);
  EXPECT_EQ(LoadPerRank(model, alone, 1)[0].pairs, 4);
  EXPECT_EQ(std::count(alone.begin(), alone.end(), -1), 4);
}

TEST(RoutingTest, LoadsSumToAllPairs) {
  const Model model = KimiModel();
  const auto experts = Draw(model, WithDistribution(Distribution::kZipf), 33);
  double pairs = 0;
  for (const ExpertLoad& load : LoadPerRank(model, experts, 8)) {
    pairs += load.pairs;
  }
  EXPECT_EQ(pairs, 33 * 8);
}

TEST(RoutingTest, EstimatesMeanAndMostLoadedRank) {
  const auto zipf = EstimateLoad(KimiModel(), WithDistribution(Distribution::kZipf), 64, 8, 0, 50);
  ASSERT_TRUE(zipf.ok()) << zipf.status();
  EXPECT_NEAR(zipf->mean_rank.pairs, 64.0 * 8 / 8, 1e-9);
  EXPECT_GT(zipf->most_loaded_rank.pairs, zipf->mean_rank.pairs);
  EXPECT_GT(zipf->imbalance, 1.1);
  const auto balanced =
      EstimateLoad(WithExperts(256, 8), WithDistribution(Distribution::kBalanced), 8, 16, 0, 10);
  ASSERT_TRUE(balanced.ok());
  EXPECT_NEAR(balanced->imbalance, 1, 1e-9);
}

TEST(RoutingTest, ScoresKeepTheirOrderThroughTheScoringFunctions) {
  const auto scores =
      MakeRouterScores(KimiModel(), WithDistribution(Distribution::kZipf), 16, 3, 0);
  ASSERT_TRUE(scores.ok());
  for (size_t i = 0; i + 1 < scores->size(); ++i) {
    const float a = (*scores)[i];
    const float b = (*scores)[i + 1];
    const auto sigmoid = [](float x) { return 1.0F / (1.0F + std::exp(-x)); };
    EXPECT_EQ(a < b, sigmoid(a) < sigmoid(b)) << a << " " << b;
    EXPECT_EQ(a < b, std::exp(a) < std::exp(b)) << a << " " << b;
  }
}

}  // namespace
}  // namespace lastflop
