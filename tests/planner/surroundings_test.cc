// What a ranking warns of: the machine, the host and the runs that its figures come from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/quarantine_note.h"
#include "planner/rank.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(MakeRankingTest, WarnsWhenTheBaselineDriftsMoreThanAClaimedGain) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("claimed", 1.0, 1.0);
  builder.last().claim = Claim{.low = 1.02, .high = std::nullopt};
  for (PairSample& sample : builder.results().attempts.back().result.samples) {
    sample.pair.baseline_us *= 1.05;
    sample.pair.variant_us *= 1.05;
  }
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_NEAR(*ranking.baseline[1].drift, 0.05, 0.005);
  EXPECT_FALSE(ranking.baseline[0].drift > 0.02);
  EXPECT_THAT(ranking.warnings,
              testing::Contains(HasSubstr("more than is claimed by claimed (2.0%)")));
}

TEST(MakeRankingTest, WarnsOfALargeDriftHoweverMuchSamplesScatter) {
  CampaignBuilder builder;
  builder.Baseline(1000, 0.9).Measured("claimed", 1.0, 1.0, 0.9);
  builder.last().claim = Claim{.low = 1.02, .high = std::nullopt};
  for (AttemptRecord& attempt : builder.results().attempts) {
    if (attempt.result.trial_id == "t3") {
      for (PairSample& sample : attempt.result.samples) {
        sample.pair.baseline_us *= 20;
      }
    }
  }
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_GT(*ranking.baseline[1].drift, 5);
  EXPECT_THAT(ranking.warnings,
              testing::Contains(HasSubstr("more than is claimed by claimed (2.0%)")));
}

TEST(MakeRankingTest, WarnsOfAHostThatOthersUsedToo) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.2, 1.2);
  std::vector<AttemptRecord>& attempts = builder.results().attempts;
  attempts[0].result.environment[kCpuShareElsewhere] = "0.02";
  attempts[1].result.environment[kCpuShareElsewhere] = "0.64";
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(ranking.warnings,
              Contains(HasSubstr("others took up to 64% of its processors while 1 of 12 attempts "
                                 "were timed (of 10 it is not known); measure")));
  EXPECT_FALSE(ranking.environment.contains(kCpuShareElsewhere)) << "it says nothing of the place";
  attempts[1].result.environment[kCpuShareElsewhere] = "0.03";
  EXPECT_THAT(MakeRanking(builder.results()).warnings, Not(Contains(HasSubstr("host was busy"))));
}

TEST(MakeRankingTest, SaysThatACampaignForAnyMachineTookTheCpuOfAHostWithGpus) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.2, 1.2);
  for (AttemptRecord& attempt : builder.results().attempts) {
    attempt.result.environment[kUnusedGpus] = "this host has 2 NVIDIA GPUs";
  }
  builder.results().campaign.machine_auto = true;
  const Ranking ranking = MakeRanking(builder.results());
  ASSERT_FALSE(ranking.warnings.empty());
  EXPECT_EQ(ranking.warnings.front(), "this host has 2 NVIDIA GPUs");
  EXPECT_EQ(ranking.environment.at(kUnusedGpus), "this host has 2 NVIDIA GPUs");
  builder.results().campaign.machine_auto = false;
  EXPECT_THAT(MakeRanking(builder.results()).warnings, Not(Contains(HasSubstr("NVIDIA"))));
}

TEST(MakeRankingTest, WarnsWhereNoiseHidesEffectsAndWhereTheBreakdownIsOfAnotherStep) {
  CampaignBuilder builder;
  builder.Baseline(1000, 0.5);
  for (AttemptRecord& attempt : builder.results().attempts) {
    attempt.result.breakdown = {{OpCategory::kMoe, "moe.gate_up", 100}};
    attempt.result.breakdown_step_us = 150;
  }
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(ranking.warnings, testing::Contains(HasSubstr("are told from noise")));
  EXPECT_THAT(ranking.warnings,
              testing::Contains(HasSubstr("the step of the breakdown took 150.0 us")));
}

TEST(MakeRankingTest, GivesNoFigureOfNoiseThatHidesEverything) {
  CampaignBuilder builder;
  builder.Baseline(1000, 0.5);
  std::vector<AttemptRecord>& attempts = builder.results().attempts;
  for (size_t i = 0; i < attempts.size(); ++i) {
    for (PairSample& sample : attempts[i].result.samples) {
      sample.pair.variant_us *= i % 2 == 0 ? 40 : 0.02;
    }
  }
  const std::vector<std::string> warnings = MakeRanking(builder.results()).warnings;
  EXPECT_THAT(warnings, Contains(HasSubstr("at decode b1 c4096 nothing could be told from noise")));
  EXPECT_THAT(warnings, Not(Contains(HasSubstr("only effects above"))));
}

TEST(MakeRankingTest, WarnsOfAMachineWithoutAMemoryBandwidth) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  builder.results().campaign.machine_auto = false;
  const auto names_it = testing::Contains(HasSubstr("has no memory bandwidth"));
  EXPECT_THAT(MakeRanking(builder.results()).warnings, names_it);
  builder.results().machine.peak_bandwidth_gb_per_s = 100;
  EXPECT_THAT(MakeRanking(builder.results()).warnings, testing::Not(names_it));
}

TEST(MakeRankingTest, NamesAFieldThatRanWithAnotherValueThanAsked) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("one-shot", 1.2, 1.2);
  Plan ran = builder.results().campaign.baseline;
  ran.collectives.all_reduce = AllReduceAlgorithm::kRing;
  for (TrialRecord& trial : builder.results().trials) {
    if (trial.spec.intervention_id == "one-shot") {
      trial.spec.variant.collectives.all_reduce = AllReduceAlgorithm::kOneShot;
    }
  }
  builder.results().attempts.back().result.effective_variant = CanonicalText(ran);
  EXPECT_THAT(MakeRanking(builder.results()).warnings,
              testing::Contains(HasSubstr("asked for collectives.all_reduce=one_shot, ran ring")));
}

TEST(MakeRankingTest, NamesWhatChangedInTheEnvironmentWhileTheCampaignRan) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("early", 1.2, 1.2).Measured("late", 1.1, 1.1);
  for (AttemptRecord& attempt : builder.results().attempts) {
    attempt.result.environment = {{"build", "aa"}, {"driver", "570"}, {"sm_clock_mhz", "1980"}};
  }
  EXPECT_THAT(MakeRanking(builder.results()).warnings,
              testing::Not(testing::Contains(HasSubstr("environment changed"))));
  // Resumed with another build: the last trial's later launches.
  std::vector<AttemptRecord>& attempts = builder.results().attempts;
  attempts.back().result.environment = {{"build", "bb"}, {"driver", "570"}};
  const std::vector<std::string> warnings = MakeRanking(builder.results()).warnings;
  EXPECT_THAT(warnings, testing::Contains(testing::AllOf(
                            HasSubstr("the environment changed while the campaign ran: build aa ("),
                            HasSubstr("launches of both are pooled in late"))));
  EXPECT_THAT(warnings, testing::Not(testing::Contains(HasSubstr("driver 570"))));
}

TEST(MakeRankingTest, SaysThatAWorkerWasQuarantined) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("one", 1.2, 1.2);
  AttemptRecord lost;
  lost.result.attempt_id = "lost";
  lost.result.trial_id = builder.results().trials[0].spec.trial_id;
  lost.state = AttemptState::kLost;
  lost.outcome = QuarantineNote("w0", "it failed a baseline", "signal 11");
  builder.results().attempts.push_back(lost);
  lost.outcome = "worker w1 was silent for 15 s";
  builder.results().attempts.push_back(lost);
  const std::vector<std::string> warnings = MakeRanking(builder.results()).warnings;
  EXPECT_THAT(warnings,
              testing::Contains("worker w0 is quarantined: it failed a baseline: signal 11"));
  EXPECT_THAT(warnings, testing::Not(testing::Contains(HasSubstr("w1"))));
}

}  // namespace
}  // namespace lastflop
