#include "stats/resample.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

TEST(ResampleTest, SumsLaunchesAndDrawsInOrderOfAppearance) {
  const std::vector<Pair> pairs = {
      {.launch = 4, .draw = 9, .baseline_us = 1, .variant_us = 2},
      {.launch = 2, .draw = 9, .baseline_us = 3, .variant_us = 4},
      {.launch = 4, .draw = 7, .baseline_us = 5, .variant_us = 6},
  };
  const std::vector<PairSums> launches = SumByLaunch(pairs);
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[0].baseline_us, 6);
  EXPECT_EQ(launches[0].num_pairs, 2);
  const std::vector<PairSums> draws = SumByDraw(pairs);
  ASSERT_EQ(draws.size(), 2u);
  EXPECT_EQ(draws[0].variant_us, 6);
  EXPECT_EQ(draws[1].num_pairs, 1);
}

TEST(ResampleTest, LaunchVarianceOfEqualLaunchesIsThatOfTheirMean) {
  // Log ratios +-d of two launches with equal weight: sample variance 2 d^2, over two launches.
  const double d = 1e-4;
  const std::vector<PairSums> launches = {
      {.baseline_us = 100 * std::exp(d), .variant_us = 100, .num_pairs = 10},
      {.baseline_us = 100 * std::exp(-d), .variant_us = 100, .num_pairs = 10}};
  EXPECT_NEAR(LaunchVariance(launches) / (d * d), 1, 1e-6);
}

TEST(ResampleTest, LongLaunchesWeighNoMoreThanShortOnes) {
  std::vector<Pair> pairs(9, {.launch = 0, .baseline_us = 110, .variant_us = 100});
  pairs.push_back({.launch = 1, .baseline_us = 90, .variant_us = 100});
  const std::vector<PairSums> launches = SumByLaunch(WeighLaunchesEqually(pairs));
  EXPECT_NEAR(launches[0].baseline_us, 110, 1e-9);
  EXPECT_NEAR(launches[1].baseline_us, 90, 1e-9);
  EXPECT_NEAR(launches[0].variant_us, launches[1].variant_us, 1e-9);
}

std::vector<PairSums> AlternatingDraws(int num_draws, int run_length) {
  std::vector<PairSums> draws;
  for (int i = 0; i < num_draws; ++i) {
    const double sign = (i / run_length) % 2 == 0 ? 1 : -1;
    draws.push_back({.baseline_us = 100 + sign, .variant_us = 100, .num_pairs = 1});
  }
  return draws;
}

TEST(ResampleTest, DrawVarianceSeesSlowWaves) {
  // Equal values, in runs of 8 or of 1: neighbours that agree tell less about the mean.
  const double fast = DrawVariance(AlternatingDraws(64, 1), 2000, 1);
  const double slow = DrawVariance(AlternatingDraws(64, 8), 2000, 1);
  EXPECT_GT(slow, 2 * fast);
}

TEST(ResampleTest, DrawVarianceDependsOnItsSeedAlone) {
  const std::vector<PairSums> draws = AlternatingDraws(50, 3);
  EXPECT_EQ(DrawVariance(draws, 100, 7), DrawVariance(draws, 100, 7));
  EXPECT_NE(DrawVariance(draws, 100, 7), DrawVariance(draws, 100, 8));
}

TEST(ResampleTest, PairVarianceIsZeroWhereEveryPairHasTheSameRatio) {
  // Draws of very different cost, the same speedup: nothing varies in the ratio.
  const std::vector<Pair> pairs = {{.baseline_us = 2, .variant_us = 1},
                                   {.baseline_us = 2000, .variant_us = 1000},
                                   {.baseline_us = 20, .variant_us = 10}};
  EXPECT_NEAR(PairVariance(pairs), 0, 1e-20);
}

}  // namespace
}  // namespace lastflop
