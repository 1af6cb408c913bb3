#include "stats/judge.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

TEST(JudgeEffectTest, CallsAWideIntervalAroundZeroUndecidedNotSame) {
  // 0% +/- 3% contains zero, but a 2% win would hide in it.
  EXPECT_EQ(JudgeEffect(Interval{.low = -0.03, .high = 0.03}, 0.01), Effect::kUndecided);
  EXPECT_EQ(JudgeEffect(Interval{.low = -0.005, .high = 0.005}, 0.01), Effect::kSame);
}

TEST(JudgeEffectTest, ADirectionNeedsTheWholeIntervalBeyondTheMinimumEffect) {
  EXPECT_EQ(JudgeEffect(Interval{.low = 0.011, .high = 0.03}, 0.01), Effect::kFaster);
  EXPECT_EQ(JudgeEffect(Interval{.low = -0.03, .high = -0.011}, 0.01), Effect::kSlower);
  EXPECT_EQ(JudgeEffect(Interval{.low = 0.005, .high = 0.03}, 0.01), Effect::kUndecided);
}

TEST(JudgeEffectTest, NotANumberIsUndecided) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(JudgeEffect(Interval{.low = nan, .high = nan}, 0.01), Effect::kUndecided);
}

TEST(JudgeEffectTest, AnEstimateWithoutAnIntervalIsUndecided) {
  const std::vector<Pair> pairs = {{.baseline_us = 300, .variant_us = 100}};
  EXPECT_EQ(JudgeEffect(*EstimateSpeedup(pairs, {}), 0.01), Effect::kUndecided);
}

// 30 pairs in 3 launches, alternating by `noise` around `speedup`.
Estimate EstimateOf(double speedup, double noise) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 30; ++i) {
    pairs.push_back({.launch = i / 10,
                     .draw = i,
                     .baseline_us = 100 * speedup * std::exp(i % 2 == 0 ? noise : -noise),
                     .variant_us = 100});
  }
  return *EstimateSpeedup(pairs, {});
}

TEST(JudgeEffectTest, HalfAPercentInThreePercentNoiseIsNeverFaster) {
  EXPECT_EQ(JudgeEffect(EstimateOf(1.005, 0.03), 0.01), Effect::kUndecided);
  // With less noise the interval fits into the band.
  EXPECT_EQ(JudgeEffect(EstimateOf(1.005, 0.003), 0.01), Effect::kSame);
}

TEST(JudgeEffectTest, ReadsAnEstimateInBothDirections) {
  EXPECT_EQ(JudgeEffect(EstimateOf(1.05, 0.01), 0.01), Effect::kFaster);
  EXPECT_EQ(JudgeEffect(EstimateOf(1 / 1.05, 0.01), 0.01), Effect::kSlower);
}

}  // namespace
}  // namespace lastflop
