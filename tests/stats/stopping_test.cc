#include "stats/stopping.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/stats/simulated_sampler.h"

namespace lastflop {
namespace {

Pair PairOf(int i, double noise) {
  return {.draw = i, .baseline_us = 100 * std::exp(i % 2 == 0 ? noise : -noise), .variant_us = 100};
}

TEST(SliceMonitorTest, StopsAQuietLaunchAtItsLeastPairs) {
  SliceMonitor monitor({.min_pairs = 10, .max_time = Micros(1e6)});
  for (int i = 0; i < 9; ++i) {
    monitor.Add(PairOf(i, 0.0001));
    EXPECT_FALSE(monitor.Decide(Micros(200 * (i + 1))).stop);
  }
  monitor.Add(PairOf(9, 0.0001));
  const SliceDecision decision = monitor.Decide(Micros(2000));
  EXPECT_TRUE(decision.stop);
  EXPECT_EQ(decision.reason, StopReason::kPrecise);
}

TEST(SliceMonitorTest, TakesMorePairsForMoreNoise) {
  const auto num_pairs = [](double noise) {
    SimulatedSampler sampler({.noise = noise}, /*seed=*/3);
    sampler.Launch();
    SliceMonitor monitor({.max_time = Micros(1e12)});
    while (!monitor.Decide(Micros(0)).stop) {
      monitor.Add(sampler.Next());
    }
    return monitor.num_pairs();
  };
  const int at_one_percent = num_pairs(0.01);
  EXPECT_GT(at_one_percent, 40);
  EXPECT_LT(at_one_percent, 160);
  EXPECT_NEAR(num_pairs(0.04) / static_cast<double>(at_one_percent), 16, 8);
}

TEST(SliceMonitorTest, AnUnreachableHalfWidthEndsAtMaxTime) {
  SliceMonitor monitor({.half_width = 1e-6, .max_time = Micros(50'000)});
  SimulatedSampler sampler({}, /*seed=*/3);
  sampler.Launch();
  int num_pairs = 0;
  while (!monitor.Decide(Micros(200.0 * num_pairs)).stop) {
    monitor.Add(sampler.Next());
    ++num_pairs;
  }
  EXPECT_EQ(num_pairs, 250);
  EXPECT_EQ(monitor.Decide(Micros(50'000)).reason, StopReason::kMaxTime);
}

TEST(SliceMonitorTest, StopsAtMaxTimeWithoutAnyPair) {
  const SliceMonitor monitor({.max_time = Micros(1000)});
  EXPECT_FALSE(monitor.Decide(Micros(999)).stop);
  EXPECT_TRUE(monitor.Decide(Micros(1000)).stop);
}

TEST(SliceMonitorTest, NeverLooksAtTheEffect) {
  // The same noise around no effect and around 3x stops at the same pair.
  const auto num_pairs = [](double speedup) {
    SimulatedSampler sampler({.speedup = speedup}, /*seed=*/3);
    sampler.Launch();
    SliceMonitor monitor({.max_time = Micros(1e12)});
    while (!monitor.Decide(Micros(0)).stop) {
      monitor.Add(sampler.Next());
    }
    return monitor.num_pairs();
  };
  EXPECT_EQ(num_pairs(1), num_pairs(3));
}

TEST(SliceMonitorTest, CountsAutocorrelatedNoiseForWhatItIs) {
  const auto standard_error = [](double autocorrelation) {
    SimulatedSampler sampler({.autocorrelation = autocorrelation}, /*seed=*/5);
    sampler.Launch();
    SliceMonitor monitor({});
    for (int i = 0; i < 3000; ++i) {
      monitor.Add(sampler.Next());
    }
    return monitor.StandardError();
  };
  // sd / sqrt(n), times sqrt((1 + phi) / (1 - phi)) = 3 at phi = 0.8; the largest of a few
  // estimates.
  EXPECT_NEAR(standard_error(0) / (0.01 / std::sqrt(3000.0)), 1.15, 0.3);
  EXPECT_NEAR(standard_error(0.8) / (0.01 / std::sqrt(3000.0)), 3.4, 1);
}

TEST(SliceMonitorTest, IgnoresThrottledAndImpossiblePairs) {
  SliceMonitor monitor({});
  monitor.Add({.baseline_us = 0, .variant_us = 1});
  monitor.Add({.baseline_us = 1, .variant_us = std::numeric_limits<double>::quiet_NaN()});
  monitor.Add({.baseline_us = 1, .variant_us = 1, .throttled = true});
  EXPECT_EQ(monitor.num_pairs(), 0);
  EXPECT_EQ(monitor.StandardError(), 0);
}

TEST(SliceRuleTest, SharesATrialEvenly) {
  MeasureOptions measure;
  measure.launches = 4;
  measure.min_pairs = 30;
  measure.max_time = std::chrono::milliseconds(2000);
  const SliceRule rule = SliceRuleOf(measure);
  EXPECT_EQ(rule.min_pairs, 8);
  EXPECT_EQ(rule.num_launches, 4);
  EXPECT_DOUBLE_EQ(rule.max_time.count(), 500'000);
}

std::vector<Pair> Launches(int num_launches, double noise, double launch_spread = 0) {
  SimulatedSampler sampler({.noise = noise, .launch_spread = launch_spread}, /*seed=*/17);
  std::vector<Pair> pairs;
  for (int launch = 0; launch < num_launches; ++launch) {
    sampler.Launch();
    for (int i = 0; i < 20; ++i) {
      pairs.push_back(sampler.Next());
    }
  }
  return pairs;
}

TEST(LookAtTrialTest, OneLookAtTheLastLaunchSpendsAllAndCostsNothing) {
  const std::vector<Pair> pairs = Launches(3, 0.001);
  const auto look = LookAtTrial(pairs, {}, Micros(1000), /*spent=*/0, /*seed=*/1);
  ASSERT_TRUE(look.ok());
  EXPECT_TRUE(look->stop);
  EXPECT_EQ(look->reason, StopReason::kPrecise);
  EXPECT_TRUE(look->converged);
  EXPECT_EQ(look->spent, 1);
  EXPECT_EQ(look->estimate.interval->low, EstimateSpeedup(pairs, {})->interval->low);
}

TEST(LookAtTrialTest, DoesNotLookBeforeTheLeastLaunches) {
  const auto look = LookAtTrial(Launches(2, 0.001), {}, Micros(1000), 0, 1);
  ASSERT_TRUE(look.ok());
  EXPECT_FALSE(look->stop);
  EXPECT_EQ(look->num_more_launches, 1);
  EXPECT_EQ(look->spent, 0);
  EXPECT_FALSE(look->estimate.interval.has_value());
}

TEST(LookAtTrialTest, AnUnreachableHalfWidthEndsAtMaxTimeAsNotConverged) {
  const TrialRule rule{.half_width = 1e-6, .max_launches = 50, .max_time = Micros(3e6)};
  const auto before = LookAtTrial(Launches(4, 0.01), rule, Micros(2.9e6), 0, 1);
  ASSERT_TRUE(before.ok());
  EXPECT_FALSE(before->stop);
  EXPECT_EQ(before->num_more_launches, 46);
  const auto after = LookAtTrial(Launches(5, 0.01), rule, Micros(3e6), before->spent, 1);
  ASSERT_TRUE(after.ok());
  EXPECT_TRUE(after->stop);
  EXPECT_EQ(after->reason, StopReason::kMaxTime);
  EXPECT_FALSE(after->converged);
  EXPECT_TRUE(after->estimate.interval.has_value());
}

TEST(LookAtTrialTest, MaxTimeEndsATrialOfOnePairWithoutAnInterval) {
  const std::vector<Pair> pairs = {{.baseline_us = 4e6, .variant_us = 2e6}};
  const auto look = LookAtTrial(pairs, {}, Micros(6e6), 0, 1);
  ASSERT_TRUE(look.ok());
  EXPECT_TRUE(look->stop);
  EXPECT_FALSE(look->converged);
  EXPECT_FALSE(look->estimate.interval.has_value());
}

TEST(LookAtTrialTest, AsksForLaunchesWhereTheyAreWhatDiffers) {
  const TrialRule rule{.max_launches = 40};
  const auto quiet = LookAtTrial(Launches(3, 0.01, 0), rule, Micros(0), 0, 1);
  const auto spread = LookAtTrial(Launches(3, 0.01, 0.02), rule, Micros(0), 0, 1);
  ASSERT_TRUE(quiet.ok() && spread.ok());
  EXPECT_FALSE(quiet->stop);
  EXPECT_GT(spread->num_more_launches, quiet->num_more_launches);
}

TEST(LookAtTrialTest, ADecidedEffectStopsOnlyWhereTheRuleSaysSo) {
  std::vector<Pair> pairs = Launches(3, 0.01);
  for (Pair& pair : pairs) {
    pair.variant_us /= 2;
  }
  TrialRule rule{.half_width = 1e-5, .max_launches = 6};
  EXPECT_FALSE(LookAtTrial(pairs, rule, Micros(0), 0, 1)->stop);
  rule.stop_when_decided = true;
  const auto look = LookAtTrial(pairs, rule, Micros(0), 0, 1);
  EXPECT_EQ(look->reason, StopReason::kDecided);
  EXPECT_FALSE(look->converged);
}

TEST(LookAtTrialTest, RefusesToLookTwiceAtTheSameLaunches) {
  const std::vector<Pair> pairs = Launches(3, 0.01);
  const TrialRule rule{.half_width = 1e-5, .max_launches = 6};
  const auto look = LookAtTrial(pairs, rule, Micros(0), 0, 1);
  ASSERT_TRUE(look.ok());
  EXPECT_EQ(LookAtTrial(pairs, rule, Micros(0), look->spent, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(SpendableShareTest, RisesFromNothingToAll) {
  EXPECT_EQ(SpendableShare(0), 0);
  EXPECT_EQ(SpendableShare(1), 1);
  EXPECT_NEAR(SpendableShare(0.5), std::log((1 + std::exp(1.0)) / 2), 1e-12);
  EXPECT_LT(SpendableShare(0.25), SpendableShare(0.75));
}

}  // namespace
}  // namespace lastflop
