#include "planner/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

TEST(PoolTrialsTest, PoolsAuthoritativeLaunchesOnly) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  AttemptRecord late = builder.results().attempts.front();
  late.authoritative = false;
  builder.results().attempts.push_back(late);
  EXPECT_EQ(PoolTrials(builder.results())[0].pairs.size(), 36);
}

TEST(PoolTrialsTest, CallsNothingFullThatOneRankOfSeveralMeasured) {
  CampaignBuilder builder;
  builder.Baseline(1000, 0.01);
  builder.results().campaign.fidelity = Fidelity::kShard;
  EXPECT_EQ(PoolTrials(builder.results())[0].fidelity, Fidelity::kFull);  // It has one rank.
  builder.results().trials[0].spec.variant.parallel.tensor = 8;
  EXPECT_EQ(PoolTrials(builder.results())[0].fidelity, Fidelity::kShard);
}

TEST(PoolTrialsTest, DoesNotMixBuildsOfAPlugin) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  Plan& variant = builder.results().trials[0].spec.variant;
  variant.moe.kernel = MoeKernel::kPlugin;
  variant.moe.plugin = "fast";
  const std::string id = builder.results().trials[0].spec.trial_id;
  std::vector<AttemptRecord*> attempts;
  for (AttemptRecord& attempt : builder.results().attempts) {
    if (attempt.result.trial_id == id) {
      attempts.push_back(&attempt);
      attempt.result.environment["plugin:fast"] = "fast 1.0, file a";
    }
  }
  ASSERT_EQ(attempts.size(), 3u);
  EXPECT_EQ(PoolTrials(builder.results())[0].pairs.size(), 36u);
  attempts.back()->result.environment["plugin:fast"] = "fast 1.0, file b";
  const PooledTrial mixed = PoolTrials(builder.results())[0];
  EXPECT_EQ(mixed.pairs.size(), 12u);
  EXPECT_EQ(mixed.num_other_builds, 2);
  EXPECT_EQ(mixed.standing, Standing::kMeasured);
}

TEST(PoolTrialsTest, GivesAWrongResultNoTime) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("wrong", 3, 3);
  CheckResult& check = builder.results().attempts.back().result.check_after;
  check.ok = false;
  check.max_error = 0.5;
  check.tolerance = 0.01;
  const PooledTrial wrong = PoolTrials(builder.results()).back();
  EXPECT_EQ(wrong.standing, Standing::kInvalid);
  EXPECT_TRUE(wrong.pairs.empty());
  EXPECT_THAT(wrong.reason, HasSubstr("wrong result: error 0.5, tolerance 0.01"));
}

TEST(PoolTrialsTest, GivesATrialThatHasNotFinishedNoTime) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  builder.results().trials[0].state = TrialState::kRunning;
  builder.results().trials[1].state = TrialState::kLostOut;
  builder.results().trials[1].reason = "3 attempts were lost";
  const std::vector<PooledTrial> trials = PoolTrials(builder.results());
  EXPECT_EQ(trials[0].standing, Standing::kNotRun);
  EXPECT_TRUE(trials[0].pairs.empty());
  EXPECT_EQ(trials[1].standing, Standing::kNotRun);
  EXPECT_EQ(trials[1].reason, "lost_out: 3 attempts were lost");
}

TEST(PoolTrialsTest, CountsARetryThatWorkedAfterACrash) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  AttemptRecord crashed = builder.results().attempts.front();
  crashed.result.failure = Failure{.kind = FailureKind::kCrashed, .message = "signal 9"};
  const size_t num_pairs = PoolTrials(builder.results())[0].pairs.size();
  builder.results().attempts.insert(builder.results().attempts.begin(), crashed);
  const PooledTrial pooled = PoolTrials(builder.results())[0];
  EXPECT_EQ(pooled.standing, Standing::kMeasured);
  EXPECT_EQ(pooled.pairs.size(), num_pairs) << "the samples that it left count for nothing";
}

TEST(PoolTrialsTest, TakesTheStandingFromTheKindOfFailure) {
  const std::pair<FailureKind, Standing> cases[] = {
      {FailureKind::kUnsupported, Standing::kUnsupported},
      {FailureKind::kInfeasible, Standing::kInfeasible},
      {FailureKind::kOutOfMemory, Standing::kInfeasible},
      {FailureKind::kWrongResult, Standing::kInvalid},
      {FailureKind::kImpossible, Standing::kInvalid},
      {FailureKind::kCrashed, Standing::kFailed},
      {FailureKind::kRankLost, Standing::kFailed}};
  for (const auto& [kind, standing] : cases) {
    CampaignBuilder builder;
    builder.Baseline(1000).Failed("bad", kind, "the reason");
    EXPECT_EQ(PoolTrials(builder.results()).back().standing, standing) << ToWord(kind);
    EXPECT_THAT(PoolTrials(builder.results()).back().reason, HasSubstr("the reason"));
  }
}

TEST(PoolTrialsTest, TakesTheCoordinatorsWordWhereNoAttemptReported) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  builder.results().attempts.clear();
  TrialRecord& trial = builder.results().trials[0];
  trial.failure = Failure{.kind = FailureKind::kUnsupported, .message = "process.env differs"};
  TrialRecord& hung = builder.results().trials[1];
  hung.state = TrialState::kFailed;
  hung.failure = Failure{.kind = FailureKind::kTimeout, .message = "no end within 60 s"};
  hung.reason = "no end within 60 s (3 attempts)";
  const std::vector<PooledTrial> trials = PoolTrials(builder.results());
  EXPECT_EQ(trials[0].standing, Standing::kUnsupported);
  EXPECT_EQ(trials[0].reason, "process.env differs");
  EXPECT_EQ(trials[1].standing, Standing::kFailed);
  EXPECT_EQ(trials[1].reason, "no end within 60 s (3 attempts)");
}

TEST(PoolTrialsTest, KeepsWhatWasSettledBeforeItRan) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  builder.results().trials[0].spec.settled = Standing::kInfeasible;
  builder.results().trials[0].spec.settled_reason = "384 mod 5 = 4";
  EXPECT_EQ(PoolTrials(builder.results())[0].standing, Standing::kInfeasible);
  EXPECT_EQ(PoolTrials(builder.results())[0].reason, "384 mod 5 = 4");
}

}  // namespace
}  // namespace lastflop
