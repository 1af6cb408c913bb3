// The promises of docs/measuring.md, "Statistics", kept on a device that exists on paper. Each test
// records its rates with their exact binomial intervals.

#include <cmath>
#include <iostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "stats/aa.h"
#include "stats/judge.h"
#include "stats/stopping.h"
#include "tests/stats/simulated_sampler.h"

namespace lastflop {
namespace {

constexpr int kNumAaTrials = 2000;
constexpr int kNumPlantedTrials = 600;

struct Scenario {
  const char* name;
  SimulationOptions device;
  int max_launches = 3;
  bool stop_when_decided = false;
};

SimulatedTrial RunTrial(const Scenario& scenario, double min_effect, uint64_t seed) {
  const MeasureOptions measure;  // The defaults of a campaign.
  TrialRule rule = TrialRuleOf(measure, scenario.max_launches);
  rule.min_effect = min_effect;
  rule.stop_when_decided = scenario.stop_when_decided;
  rule.max_time *= static_cast<double>(rule.max_launches) / rule.min_launches;
  SimulatedSampler sampler(scenario.device, seed);
  return RunSimulatedTrial(sampler, SliceRuleOf(measure), rule);
}

// A/A trials are judged without a minimum effect: every interval that leaves out 1.00x is false.
AaSummary RunAa(const Scenario& scenario, int num_trials) {
  std::vector<Effect> effects;
  double num_pairs = 0;
  int num_converged = 0;
  for (int i = 0; i < num_trials; ++i) {
    const SimulatedTrial trial = RunTrial(scenario, 0, 1'000'003u + static_cast<uint64_t>(i));
    effects.push_back(JudgeEffect(trial.look.estimate, 0));
    num_pairs += trial.look.estimate.num_pairs;
    num_converged += trial.look.converged ? 1 : 0;
  }
  const AaSummary summary = *SummarizeAa(effects, 0.95);
  std::cout << "A/A " << scenario.name << ": " << summary.num_false << " of " << summary.num_trials
            << " false, " << 100 * summary.interval.low << "% to " << 100 * summary.interval.high
            << "%; pairs " << num_pairs / num_trials << ", converged " << num_converged << "\n";
  return summary;
}

const SimulationOptions kTroubled = {.draw_spread = 0.3,
                                     .autocorrelation = 0.3,
                                     .launch_spread = 0.002,
                                     .drift_per_pair = 0.0002,
                                     .outlier_share = 0.005,
                                     .outlier_factor = 1.2};

TEST(SimulationTest, FindsAtMostFivePercentFalseDifferencesWithEarlyStopping) {
  const Scenario scenario{.name = "all troubles", .device = kTroubled};
  const AaSummary summary = RunAa(scenario, kNumAaTrials);
  RecordProperty("num_false", summary.num_false);
  RecordProperty("interval_low", std::to_string(summary.interval.low));
  RecordProperty("interval_high", std::to_string(summary.interval.high));
  EXPECT_LE(summary.false_rate, 0.05);
}

TEST(SimulationTest, StoppingOnTheEffectAndAddingLaunchesStaysWithinFivePercent) {
  // The hardest case for a rule that looks: launches differ by more than their pairs' noise, and a
  // difference ends the trial.
  const Scenario scenario{.name = "launches added until decided",
                          .device = {.launch_spread = 0.005},
                          .max_launches = 9,
                          .stop_when_decided = true};
  const AaSummary summary = RunAa(scenario, kNumAaTrials);
  RecordProperty("num_false", summary.num_false);
  EXPECT_LE(summary.false_rate, 0.05);
}

TEST(SimulationTest, FindsFewFalseDifferencesWhateverTheTrouble) {
  const Scenario scenarios[] = {
      {.name = "quiet", .device = {}},
      {.name = "autocorrelated 0.5", .device = {.autocorrelation = 0.5}},
      {.name = "autocorrelated 0.9", .device = {.autocorrelation = 0.9}},
      {.name = "launches 0.1%", .device = {.launch_spread = 0.001}},
      {.name = "launches 1%", .device = {.launch_spread = 0.01}},
      {.name = "skewed draws", .device = {.draw_spread = 0.8}},
      {.name = "drift 0.1% a pair", .device = {.drift_per_pair = 0.001}},
      {.name = "outliers", .device = {.outlier_share = 0.01, .outlier_factor = 1.1}},
      {.name = "draws shared by launches",
       .device = {.draw_ratio_spread = 0.01, .shares_draws = true}},
  };
  for (const Scenario& scenario : scenarios) {
    const AaSummary summary = RunAa(scenario, 400);
    // At 5% the chance of more than 30 in 400 is 1.3%.
    EXPECT_LE(summary.num_false, 30) << scenario.name;
  }
}

int NumFound(const Scenario& scenario, Effect effect) {
  int num_found = 0;
  for (int i = 0; i < kNumPlantedTrials; ++i) {
    const SimulatedTrial trial = RunTrial(scenario, 0.01, 7'000'001u + static_cast<uint64_t>(i));
    num_found += JudgeEffect(trial.look.estimate, 0.01) == effect ? 1 : 0;
  }
  const Interval interval = *ExactBinomialInterval(num_found, kNumPlantedTrials, 0.95);
  std::cout << "planted " << scenario.name << ": " << num_found << " of " << kNumPlantedTrials
            << " found, " << 100 * interval.low << "% to " << 100 * interval.high << "%\n";
  return num_found;
}

TEST(SimulationTest, FindsTwoPercentInOnePercentNoise) {
  constexpr int kEnough = kNumPlantedTrials * 95 / 100;
  EXPECT_GE(NumFound({.name = "2% faster", .device = {.speedup = 1.02}}, Effect::kFaster), kEnough);
  EXPECT_GE(NumFound({.name = "2% slower", .device = {.speedup = 1 / 1.02}}, Effect::kSlower),
            kEnough);
  EXPECT_GE(NumFound({.name = "2% faster, troubled",
                      .device = {.speedup = 1.02,
                                 .draw_spread = 0.5,
                                 .autocorrelation = 0.3,
                                 .launch_spread = 0.001,
                                 .drift_per_pair = 0.0002}},
                     Effect::kFaster),
            kEnough);
  EXPECT_GE(NumFound({.name = "2% faster, launches 0.3%, up to 9 of them",
                      .device = {.speedup = 1.02, .launch_spread = 0.003},
                      .max_launches = 9},
                     Effect::kFaster),
            kEnough);
}

TEST(SimulationTest, TheRatioOfMeansIsRightUnderSkewedRouting) {
  // The variant is 2x faster but for a fixed part: cheap draws gain little, expensive ones much.
  const SimulationOptions device = {
      .speedup = 2, .variant_fixed_us = 200, .draw_spread = 0.8, .launch_spread = 0.002};
  const SimulatedSampler truth(device, 0);
  ASSERT_NEAR(truth.TrueSpeedup(), 1000.0 / 700.0, 1e-12);
  constexpr int kNumTrials = 400;
  int num_covered = 0;
  double sum_of_logs = 0;
  double sum_of_mean_ratios = 0;
  for (int i = 0; i < kNumTrials; ++i) {
    const SimulatedTrial trial =
        RunTrial({.name = "skewed", .device = device}, 0.01, 42u + static_cast<uint64_t>(i));
    const Estimate& estimate = trial.look.estimate;
    num_covered += estimate.interval->low <= truth.TrueSpeedup() &&
                           truth.TrueSpeedup() <= estimate.interval->high
                       ? 1
                       : 0;
    sum_of_logs += estimate.log_ratio;
    for (const Pair& pair : trial.pairs) {
      sum_of_mean_ratios += pair.baseline_us / pair.variant_us / estimate.num_pairs;
    }
  }
  const Interval coverage = *ExactBinomialInterval(num_covered, kNumTrials, 0.95);
  std::cout << "skewed routing: " << num_covered << " of " << kNumTrials << " intervals hold "
            << truth.TrueSpeedup() << ", " << 100 * coverage.low << "% to " << 100 * coverage.high
            << "%; mean of ratios " << sum_of_mean_ratios / kNumTrials << "\n";
  EXPECT_NEAR(std::exp(sum_of_logs / kNumTrials), truth.TrueSpeedup(), 0.005);
  EXPECT_GE(coverage.high, 0.95);
  // What is not reported: the mean of ratios is off by far more than any interval.
  EXPECT_LT(sum_of_mean_ratios / kNumTrials, truth.TrueSpeedup() - 0.05);
}

TEST(SimulationTest, ATrialIsTheSameForTheSameSeed) {
  const Scenario scenario{.name = "all troubles", .device = kTroubled};
  const SimulatedTrial first = RunTrial(scenario, 0.01, 9);
  const SimulatedTrial second = RunTrial(scenario, 0.01, 9);
  EXPECT_EQ(first.pairs.size(), second.pairs.size());
  EXPECT_EQ(first.look.estimate.speedup, second.look.estimate.speedup);
  EXPECT_EQ(first.look.estimate.interval->low, second.look.estimate.interval->low);
}

}  // namespace
}  // namespace lastflop
