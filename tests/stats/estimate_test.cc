#include "stats/estimate.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

// Three launches of ten pairs, 2x faster, with a little deterministic noise.
std::vector<Pair> TwiceAsFast() {
  std::vector<Pair> pairs;
  for (int launch = 0; launch < 3; ++launch) {
    for (int i = 0; i < 10; ++i) {
      const double noise = 0.01 * ((i * 7 + launch * 3) % 10 - 4.5) / 4.5;
      pairs.push_back({.launch = launch,
                       .draw = launch * 100 + i,
                       .baseline_us = 200 * (1 + noise),
                       .variant_us = 100 * (1 - noise)});
    }
  }
  return pairs;
}

void ExpectFinite(const Estimate& estimate) {
  for (const double value :
       {estimate.speedup, estimate.baseline_mean_us, estimate.variant_mean_us,
        estimate.baseline_median_us, estimate.variant_median_us, estimate.baseline_p99_us,
        estimate.variant_p99_us, estimate.noise.value_or(0), estimate.launch_spread.value_or(0),
        estimate.min_detectable_effect.value_or(0), estimate.log_ratio}) {
    EXPECT_TRUE(std::isfinite(value));
  }
  if (estimate.interval) {
    EXPECT_TRUE(std::isfinite(estimate.interval->low));
    EXPECT_TRUE(std::isfinite(estimate.interval->high));
    EXPECT_GT(estimate.interval->low, 0);
    EXPECT_LE(estimate.interval->low, estimate.speedup * (1 + 1e-12));
    EXPECT_GE(estimate.interval->high, estimate.speedup * (1 - 1e-12));
  }
  if (estimate.uncertainty) {
    EXPECT_TRUE(std::isfinite(estimate.uncertainty->launch_standard_error));
    EXPECT_TRUE(std::isfinite(estimate.uncertainty->draw_standard_error));
  }
}

TEST(EstimateSpeedupTest, GivesTheFiguresOfBothArms) {
  const auto estimate = EstimateSpeedup(TwiceAsFast(), {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_NEAR(estimate->speedup, 2, 0.001);
  EXPECT_EQ(estimate->num_pairs, 30);
  EXPECT_EQ(estimate->num_launches, 3);
  EXPECT_NEAR(estimate->baseline_mean_us, 200, 1e-9);
  EXPECT_NEAR(estimate->variant_median_us, 100, 0.2);
  EXPECT_NEAR(estimate->baseline_p99_us, 202, 0.1);
  EXPECT_NEAR(*estimate->noise, 0.0128, 0.001);
  ASSERT_TRUE(estimate->interval.has_value());
  EXPECT_LT(estimate->interval->low, 2);
  EXPECT_GT(estimate->interval->high, 2);
}

TEST(EstimateSpeedupTest, IsTheRatioOfMeansNotTheMeanOfRatios) {
  // One cheap draw at 3x, one expensive draw at 1x: the time saved is 20 of 1030.
  const std::vector<Pair> pairs = {{.draw = 1, .baseline_us = 30, .variant_us = 10},
                                   {.draw = 2, .baseline_us = 1000, .variant_us = 1000}};
  EXPECT_DOUBLE_EQ(EstimateSpeedup(pairs, {})->speedup, 1030.0 / 1010.0);
}

TEST(EstimateSpeedupTest, WeighsLaunchesTheSameWhateverTheirPairs) {
  // Nine pairs of a launch at 1.1x, one of a launch at 0.9x: launches are what was drawn twice.
  std::vector<Pair> pairs(9, {.launch = 0, .baseline_us = 110, .variant_us = 100});
  pairs.push_back({.launch = 1, .baseline_us = 90, .variant_us = 100});
  const auto estimate = EstimateSpeedup(pairs, {});
  EXPECT_NEAR(estimate->speedup, 1, 1e-12);
  EXPECT_NEAR(estimate->baseline_mean_us, 100, 1e-9);
  EXPECT_DOUBLE_EQ(estimate->baseline_median_us, 110);
}

TEST(EstimateSpeedupTest, OnePairHasNoIntervalAndNoNoise) {
  const std::vector<Pair> pairs = {{.baseline_us = 30, .variant_us = 10}};
  const auto estimate = EstimateSpeedup(pairs, {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_DOUBLE_EQ(estimate->speedup, 3);
  EXPECT_FALSE(estimate->interval.has_value());
  EXPECT_FALSE(estimate->noise.has_value());
  EXPECT_FALSE(estimate->launch_spread.has_value());
  EXPECT_FALSE(estimate->min_detectable_effect.has_value());
  EXPECT_FALSE(estimate->converged);
}

TEST(EstimateSpeedupTest, OneLaunchHasNoIntervalHoweverManyItsPairs) {
  std::vector<Pair> pairs = TwiceAsFast();
  for (Pair& pair : pairs) {
    pair.launch = 0;
  }
  const auto estimate = EstimateSpeedup(pairs, {});
  ASSERT_TRUE(estimate.ok());
  EXPECT_TRUE(estimate->noise.has_value());
  EXPECT_FALSE(estimate->interval.has_value());
}

TEST(EstimateSpeedupTest, RefusesNoPairs) {
  const auto estimate = EstimateSpeedup({}, {});
  EXPECT_EQ(estimate.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(estimate.status().message()), HasSubstr("0 pairs"));
}

TEST(EstimateSpeedupTest, RefusesATimeThatIsNoneAndNamesThePair) {
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::infinity(), 1e300, 5e-324}) {
    std::vector<Pair> pairs = TwiceAsFast();
    pairs[12].variant_us = bad;
    const auto estimate = EstimateSpeedup(pairs, {});
    EXPECT_EQ(estimate.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_THAT(std::string(estimate.status().message()),
                HasSubstr("pair 12 (launch 1, draw 102): variant_us="));
  }
}

TEST(EstimateSpeedupTest, RefusesOptionsOutOfRange) {
  const std::vector<Pair> pairs = TwiceAsFast();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(EstimateSpeedup(pairs, {.confidence = 1}).ok());
  EXPECT_FALSE(EstimateSpeedup(pairs, {.confidence = nan}).ok());
  EXPECT_FALSE(EstimateSpeedup(pairs, {.half_width = 0}).ok());
  EXPECT_FALSE(EstimateSpeedup(pairs, {.num_replicates = 1}).ok());
  EXPECT_FALSE(EstimateSpeedup(pairs, {.max_dropped_share = 1.5}).ok());
  EXPECT_FALSE(EstimateSpeedup(pairs, {.look_share = 0}).ok());
}

TEST(EstimateSpeedupTest, LaunchesThatDisagreeWidenTheInterval) {
  std::vector<Pair> pairs = TwiceAsFast();
  const double agreeing = RelativeHalfWidth(*EstimateSpeedup(pairs, {})->interval);
  for (Pair& pair : pairs) {
    pair.variant_us *= 1 + 0.02 * pair.launch;
  }
  const auto estimate = EstimateSpeedup(pairs, {});
  // Launch log ratios 0, -2% and -4%: t(2) * 2% / sqrt(3).
  EXPECT_NEAR(RelativeHalfWidth(*estimate->interval), 4.303 * 0.02 / std::sqrt(3.0), 0.003);
  EXPECT_GT(RelativeHalfWidth(*estimate->interval), 5 * agreeing);
  EXPECT_NEAR(*estimate->launch_spread, 0.0196, 0.002);
}

TEST(EstimateSpeedupTest, LaunchesThatAgreeByLuckKnowNoMoreThanTheirPairs) {
  // Every launch has the same pairs, so their means are equal to the last bit.
  std::vector<Pair> pairs;
  for (int launch = 0; launch < 3; ++launch) {
    for (int i = 0; i < 10; ++i) {
      pairs.push_back({.launch = launch,
                       .draw = launch * 100 + i,
                       .baseline_us = i % 2 == 0 ? 101.0 : 99.0,
                       .variant_us = 100});
    }
  }
  const auto estimate = EstimateSpeedup(pairs, {});
  EXPECT_NEAR(estimate->uncertainty->launch_standard_error, 0, 1e-9);
  EXPECT_GT(RelativeHalfWidth(*estimate->interval), 0.001);
  EXPECT_EQ(*estimate->launch_spread, 0);
}

TEST(EstimateSpeedupTest, DrawsSharedByAllLaunchesAreNotCountedThreeTimes) {
  // Three launches that agree exactly, because they saw the same five draws.
  std::vector<Pair> pairs;
  for (int launch = 0; launch < 3; ++launch) {
    for (int draw = 0; draw < 5; ++draw) {
      pairs.push_back(
          {.launch = launch, .draw = draw, .baseline_us = 100.0 + draw, .variant_us = 102});
    }
  }
  std::vector<Pair> fresh = pairs;
  for (Pair& pair : fresh) {
    pair.draw += 100 * pair.launch;
  }
  const double shared = EstimateSpeedup(pairs, {})->uncertainty->draw_standard_error;
  EXPECT_GT(shared, 1.3 * EstimateSpeedup(fresh, {})->uncertainty->draw_standard_error);
}

TEST(MeanTimesOfTest, IsWhatTheEstimateOfTheSamePairsHas) {
  std::vector<Pair> pairs = TwiceAsFast();
  pairs.resize(25);  // Launches of unequal length.
  pairs[3].throttled = true;
  pairs[3].variant_us = 5000;
  const auto estimate = EstimateSpeedup(pairs, {});
  const auto means = MeanTimesOf(pairs);
  ASSERT_TRUE(means.has_value());
  EXPECT_DOUBLE_EQ(means->baseline_us, estimate->baseline_mean_us);
  EXPECT_DOUBLE_EQ(means->variant_us, estimate->variant_mean_us);
  EXPECT_FALSE(MeanTimesOf({}).has_value());
}

TEST(EstimateSpeedupTest, DropsThrottledPairsWhole) {
  std::vector<Pair> pairs = TwiceAsFast();
  pairs[3].throttled = true;
  pairs[3].variant_us = 5000;
  const auto estimate = EstimateSpeedup(pairs, {});
  EXPECT_EQ(estimate->num_dropped_throttled, 1);
  EXPECT_EQ(estimate->num_pairs, 29);
  EXPECT_NEAR(estimate->speedup, 2, 0.01);
}

TEST(EstimateSpeedupTest, KeepsThrottledPairsAboveTheCapAndSaysSo) {
  std::vector<Pair> pairs = TwiceAsFast();
  for (size_t i = 0; i < 10; ++i) {
    pairs[i].throttled = true;
  }
  const auto estimate = EstimateSpeedup(pairs, {.max_dropped_share = 0.2});
  EXPECT_EQ(estimate->num_pairs, 30);
  EXPECT_EQ(estimate->num_dropped_throttled, 0);
  EXPECT_TRUE(estimate->is_over_throttle_cap);
}

TEST(EstimateSpeedupTest, StillEstimatesWhenEveryPairIsThrottledAndMayBeDropped) {
  std::vector<Pair> pairs = TwiceAsFast();
  for (Pair& pair : pairs) {
    pair.throttled = true;
  }
  const auto estimate = EstimateSpeedup(pairs, {.max_dropped_share = 1});
  ASSERT_TRUE(estimate.ok());
  EXPECT_EQ(estimate->num_pairs, 30);
  EXPECT_TRUE(estimate->is_over_throttle_cap);
}

TEST(EstimateSpeedupTest, AShareOfTheErrorGivesAWiderInterval) {
  const auto all = EstimateSpeedup(TwiceAsFast(), {});
  const auto part = EstimateSpeedup(TwiceAsFast(), {.look_share = 0.1});
  EXPECT_GT(RelativeHalfWidth(*part->interval), 1.2 * RelativeHalfWidth(*all->interval));
}

TEST(EstimateSpeedupTest, IsTheSameForTheSameSeed) {
  const auto first = EstimateSpeedup(TwiceAsFast(), {.seed = 5});
  const auto second = EstimateSpeedup(TwiceAsFast(), {.seed = 5});
  EXPECT_EQ(first->interval->low, second->interval->low);
  EXPECT_EQ(first->interval->high, second->interval->high);
}

TEST(EstimateSpeedupTest, EqualTimesGiveAnIntervalOfNoWidth) {
  std::vector<Pair> pairs(4, {.baseline_us = 70, .variant_us = 70});
  pairs[2].launch = pairs[3].launch = 1;
  const auto estimate = EstimateSpeedup(pairs, {});
  ASSERT_TRUE(estimate->interval.has_value());
  EXPECT_EQ(estimate->interval->low, 1);
  EXPECT_EQ(estimate->interval->high, 1);
  EXPECT_TRUE(estimate->converged);
}

TEST(EstimateSpeedupTest, AnIntervalWiderThanADoubleIsAbsent) {
  // Two launches that disagree by eighteen orders of magnitude.
  const std::vector<Pair> pairs = {
      {.launch = 0, .draw = 0, .baseline_us = 1e12, .variant_us = 1e-6},
      {.launch = 1, .draw = 1, .baseline_us = 1e-6, .variant_us = 1e12}};
  const auto estimate = EstimateSpeedup(pairs, {.confidence = 0.999999});
  ASSERT_TRUE(estimate.ok());
  EXPECT_FALSE(estimate->interval.has_value());
  EXPECT_FALSE(estimate->min_detectable_effect.has_value());
  EXPECT_FALSE(estimate->converged);
}

TEST(EstimateSpeedupTest, NeverGivesNanOrInfinity) {
  uint64_t counter = 0;
  const auto random = [&](uint64_t below) { return CounterRandom(11, 0, counter++) % below; };
  for (int repeat = 0; repeat < 3000; ++repeat) {
    const uint64_t num_launches = 1 + random(4);
    const uint64_t num_draws = 1 + random(12);
    const double decades = static_cast<double>(random(19));
    const auto time_us = [&] {
      const double uniform = static_cast<double>(random(1'000'001)) / 1e6;
      return std::pow(10, -6 + decades * uniform);
    };
    std::vector<Pair> pairs;
    for (uint64_t i = 0, n = 1 + random(40); i < n; ++i) {
      pairs.push_back({.launch = static_cast<int>(random(num_launches)),
                       .draw = static_cast<int64_t>(random(num_draws)),
                       .baseline_us = time_us(),
                       .variant_us = random(4) == 0 ? 1e-6 : time_us(),
                       .throttled = random(8) == 0});
    }
    const double confidence = random(2) == 0 ? 0.95 : 1 - 1e-12;
    const auto estimate = EstimateSpeedup(
        pairs, {.confidence = confidence, .num_replicates = 20, .look_share = 0.001});
    ASSERT_TRUE(estimate.ok()) << estimate.status();
    ExpectFinite(*estimate);
  }
}

}  // namespace
}  // namespace lastflop
