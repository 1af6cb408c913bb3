#include "planner/trial_speedups.h"

#include <gtest/gtest.h>

#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

// As the report has it, however many pairs a launch took.
TEST(TrialSpeedupsTest, WeighsLaunchesAlike) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  const std::string trial_id = builder.AddTrial("one", 0, "", 1000, 1, 0).spec.trial_id;
  for (AttemptRecord& attempt : builder.results().attempts) {
    if (attempt.result.trial_id != trial_id) {
      continue;
    }
    const bool is_first = attempt.result.launch == 0;
    attempt.result.samples.resize(is_first ? 12 : 1);
    for (PairSample& sample : attempt.result.samples) {
      sample.pair.baseline_us = 1000;
      sample.pair.variant_us = is_first ? 1000 : 500;
    }
  }
  EXPECT_NEAR(TrialSpeedups(builder.results()).at(trial_id), 3000.0 / 2000, 1e-9);
}

TEST(TrialSpeedupsTest, DropsThrottledPairsUpToTheCap) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  const std::string trial_id = builder.AddTrial("one", 0, "", 1000, 2, 0).spec.trial_id;
  size_t num_throttled = 0;
  const auto throttle_up_to = [&](size_t most) {
    for (AttemptRecord& attempt : builder.results().attempts) {
      for (PairSample& sample : attempt.result.samples) {
        if (attempt.result.trial_id == trial_id && !sample.pair.throttled && num_throttled < most) {
          sample.pair.throttled = true;
          sample.pair.variant_us *= 4;
          ++num_throttled;
        }
      }
    }
  };
  throttle_up_to(5);  // Of 36.
  EXPECT_NEAR(TrialSpeedups(builder.results()).at(trial_id), 2, 1e-6);
  throttle_up_to(36);
  EXPECT_NEAR(TrialSpeedups(builder.results()).at(trial_id), 0.5, 1e-6);
}

}  // namespace
}  // namespace lastflop
