#include "stats/drift.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

// Two launches of 40 pairs; `baseline_us` and `log_ratio` of the position within the launch.
template <typename Baseline, typename LogRatio>
std::vector<Pair> TwoLaunches(Baseline baseline_us, LogRatio log_ratio) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 80; ++i) {
    const double time_us = baseline_us(i % 40);
    pairs.push_back({.launch = i / 40,
                     .draw = i,
                     .baseline_us = time_us,
                     .variant_us = time_us * std::exp(-log_ratio(i % 40))});
  }
  return pairs;
}

const auto kNoEffect = [](int) { return 0.0; };

TEST(BaselineDriftTest, IsTheChangeFromTheFirstQuarterToTheLast) {
  // 0.1% a pair; the quarters' middles are 30 pairs apart.
  const auto pairs = TwoLaunches([](int i) { return 100 * std::exp(0.001 * i); }, kNoEffect);
  const auto drift = BaselineDrift(pairs);
  ASSERT_TRUE(drift.has_value());
  EXPECT_NEAR(drift->relative, 0.0305, 0.0005);
  EXPECT_TRUE(DriftExceeds(*drift, 0.02));
  EXPECT_FALSE(DriftExceeds(*drift, 0.05));
}

TEST(BaselineDriftTest, NoiseIsNoDrift) {
  const auto pairs =
      TwoLaunches([](int i) { return 100.0 * (1 + 0.3 * ((i * 17) % 11) / 11); }, kNoEffect);
  const auto drift = BaselineDrift(pairs);
  ASSERT_TRUE(drift.has_value());
  EXPECT_FALSE(DriftExceeds(*drift, 0.001));
}

TEST(BaselineDriftTest, IsAbsentForAHandfulOfPairs) {
  const std::vector<Pair> pairs(7, {.baseline_us = 10, .variant_us = 10});
  EXPECT_FALSE(BaselineDrift(pairs).has_value());
  EXPECT_FALSE(BaselineDrift({}).has_value());
}

TEST(AutocorrelationTest, SeesWavesAndAlternation) {
  const auto constant = [](int) { return 100.0; };
  const auto waves = TwoLaunches(constant, [](int i) { return (i / 10) % 2 == 0 ? 0.01 : -0.01; });
  EXPECT_GT(*LogRatioAutocorrelation(waves), 0.7);
  EXPECT_LT(EffectiveSampleSize(waves), 20);
  const auto alternating = TwoLaunches(constant, [](int i) { return i % 2 == 0 ? 0.01 : -0.01; });
  EXPECT_LT(*LogRatioAutocorrelation(alternating), -0.9);
  EXPECT_DOUBLE_EQ(EffectiveSampleSize(alternating), 80);
}

TEST(AutocorrelationTest, ADifferenceBetweenLaunchesIsNone) {
  auto pairs = TwoLaunches([](int) { return 100.0; }, [](int i) { return 0.01 * (i * 13 % 7); });
  const double before = *LogRatioAutocorrelation(pairs);
  for (Pair& pair : pairs) {
    pair.variant_us *= pair.launch == 0 ? 1 : 2;
  }
  EXPECT_NEAR(*LogRatioAutocorrelation(pairs), before, 1e-9);
}

TEST(AutocorrelationTest, IsAbsentWithoutSpread) {
  EXPECT_FALSE(LogRatioAutocorrelation({}).has_value());
  const std::vector<Pair> pairs(5, {.baseline_us = 10, .variant_us = 10});
  EXPECT_FALSE(LogRatioAutocorrelation(pairs).has_value());
  EXPECT_EQ(EffectiveSampleSize(pairs), 5);
  EXPECT_EQ(EffectiveSampleSize({}), 0);
}

}  // namespace
}  // namespace lastflop
