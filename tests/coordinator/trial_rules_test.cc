#include "coordinator/trial_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/changes.h"
#include "tests/coordinator/some_run.h"

namespace lastflop {
namespace {

using testing::HasSubstr;

constexpr int kMaxLost = 5;

class TrialRulesTest : public testing::Test {
 protected:
  // Reports on a fresh attempt at a trial and applies what follows.
  Change Report(size_t trial_index, int launch, AttemptResult result) {
    result.attempt_id = Lease(run_, trial_index, launch);
    result.trial_id = run_.results.trials[trial_index].spec.trial_id;
    result.launch = launch;
    for (PairSample& sample : result.samples) {
      sample.pair.launch = launch;
    }
    Change change = DecideReport(run_, result, 2000);
    Conclude(run_, change);
    ApplyToMemory(change, run_);
    return change;
  }

  const TrialRecord& trial(size_t index) const { return run_.results.trials[index]; }

  CampaignRun run_ = SomeRunOf(SomeCampaignOf(2, /*launches=*/2));
};

TEST_F(TrialRulesTest, ATrialIsDoneWhenEveryLaunchIsAccepted) {
  Report(0, 0, SuccessOf(""));
  EXPECT_EQ(trial(0).state, TrialState::kRunning);
  Report(0, 1, SuccessOf(""));
  EXPECT_EQ(trial(0).state, TrialState::kDone);
  EXPECT_FALSE(trial(0).failure.has_value());
  EXPECT_EQ(trial(0).num_attempts, 2);
}

TEST_F(TrialRulesTest, ConvergenceIsTheStoppingRulesAnswer) {
  AttemptResult precise = SuccessOf("");
  for (int i = 0; i < 40; ++i) {
    precise.samples.push_back(
        {.pair = {.draw = 3 + i, .baseline_us = 100 + 0.001 * (i % 3), .variant_us = 90}});
  }
  Report(0, 0, precise);
  Report(0, 1, precise);
  EXPECT_TRUE(trial(0).converged);
  EXPECT_EQ(trial(0).reason, "");

  AttemptResult noisy = SuccessOf("");
  for (int i = 0; i < 40; ++i) {
    noisy.samples.push_back(
        {.pair = {.draw = 3 + i, .baseline_us = 100.0 + 40 * (i % 2), .variant_us = 90}});
  }
  noisy.sampling_s = 10;
  Report(1, 0, noisy);
  Report(1, 1, noisy);
  EXPECT_EQ(trial(1).state, TrialState::kDone);
  EXPECT_FALSE(trial(1).converged);
  EXPECT_THAT(trial(1).reason, HasSubstr("not converged"));
}

TEST_F(TrialRulesTest, OwnFailuresEndATrialAfterExactlyMaxAttempts) {
  for (int i = 0; i < 2; ++i) {
    const Change change = Report(0, 0, FailureOf("", FailureKind::kCrashed, "signal 9"));
    EXPECT_EQ(trial(0).state, TrialState::kRunning);
    EXPECT_FALSE(change.attempts[0].authoritative) << "it may still succeed";
  }
  const Change change = Report(0, 0, FailureOf("", FailureKind::kCrashed, "signal 9"));
  EXPECT_EQ(trial(0).state, TrialState::kFailed);
  EXPECT_TRUE(change.attempts[0].authoritative);
  EXPECT_EQ(trial(0).reason, "signal 9 (3 attempts)");
  EXPECT_EQ(trial(0).failure->kind, FailureKind::kCrashed);
  EXPECT_EQ(trial(0).num_attempts, 3);
}

TEST_F(TrialRulesTest, FailuresCountOverAllLaunches) {
  Report(0, 0, FailureOf("", FailureKind::kTimeout, "slow"));
  Report(0, 0, SuccessOf(""));
  Report(0, 1, FailureOf("", FailureKind::kTimeout, "slow"));
  Report(0, 1, FailureOf("", FailureKind::kTimeout, "slow"));
  EXPECT_EQ(trial(0).state, TrialState::kFailed);
}

TEST_F(TrialRulesTest, AFindingEndsATrialAtOnceAsDone) {
  for (const FailureKind kind : {FailureKind::kUnsupported, FailureKind::kInfeasible,
                                 FailureKind::kWrongResult, FailureKind::kImpossible}) {
    CampaignRun fresh = SomeRunOf(SomeCampaignOf(2, /*launches=*/2));
    run_ = fresh;
    const Change change = Report(1, 0, FailureOf("", kind, "why"));
    EXPECT_EQ(trial(1).state, TrialState::kDone);
    EXPECT_EQ(trial(1).failure->kind, kind);
    EXPECT_EQ(trial(1).reason, "why");
    EXPECT_TRUE(change.attempts[0].authoritative);
    EXPECT_EQ(change.attempts[0].state, AttemptState::kFailed);
  }
}

TEST_F(TrialRulesTest, AReportThatClaimsSuccessMustHaveEarnedIt) {
  AttemptResult unchecked = SuccessOf("");
  unchecked.check_after.ok = false;
  EXPECT_EQ(FaultOf(unchecked)->kind, FailureKind::kWrongResult);
  AttemptResult skipped = SuccessOf("");
  skipped.check_before = {.ran = false};
  EXPECT_EQ(FaultOf(skipped)->kind, FailureKind::kInternal);
  AttemptResult empty = SuccessOf("");
  empty.samples.clear();
  EXPECT_EQ(FaultOf(empty)->kind, FailureKind::kInternal);
  AttemptResult instant = SuccessOf("");
  instant.samples[1].pair.variant_us = 0;
  EXPECT_EQ(FaultOf(instant)->kind, FailureKind::kImpossible);
  EXPECT_FALSE(FaultOf(SuccessOf("")).has_value());

  const Change change = Report(1, 0, instant);
  EXPECT_EQ(change.reports[0].failure->kind, FailureKind::kImpossible);
  EXPECT_EQ(trial(1).state, TrialState::kDone);
}

TEST_F(TrialRulesTest, LostAttemptsAreNoFailuresAndHaveACap) {
  for (int i = 1; i <= kMaxLost; ++i) {
    EXPECT_EQ(trial(1).state, i == 1 ? TrialState::kPending : TrialState::kRunning);
    const std::string attempt_id = Lease(run_, 1, 0);
    Change change =
        DecideLoss(run_, attempt_id, AttemptState::kLost, "worker gone", kMaxLost, {}, 2000);
    Conclude(run_, change);
    ApplyToMemory(change, run_);
  }
  EXPECT_EQ(trial(1).state, TrialState::kLostOut);
  EXPECT_THAT(trial(1).reason, HasSubstr("5 attempts were lost"));
  EXPECT_FALSE(trial(1).failure.has_value());
}

TEST_F(TrialRulesTest, TheCampaignEndsWithItsLastTrial) {
  Change last;
  for (size_t i = 0; i < 3; ++i) {
    for (int launch = 0; launch < 2; ++launch) {
      EXPECT_EQ(run_.results.state, CampaignState::kRunning);
      last = Report(i, launch, SuccessOf(""));
    }
  }
  EXPECT_EQ(run_.results.state, CampaignState::kDone);
  EXPECT_EQ(run_.results.ended_at_ms, 2000);
  EXPECT_EQ(last.events.back().kind, "campaign");
  EXPECT_EQ(last.events.back().summary.num_done, 3);
}

TEST_F(TrialRulesTest, WithoutABaselineNothingElseAtThatPointRuns) {
  Change change = Report(0, 0, FailureOf("", FailureKind::kWrongResult, "layer 3 is off"));
  EXPECT_EQ(trial(1).state, TrialState::kCancelled);
  EXPECT_EQ(trial(1).reason, "no baseline at this point: layer 3 is off");
  EXPECT_EQ(run_.results.state, CampaignState::kBaselineFailed);
}

TEST_F(TrialRulesTest, ABaselineThatIsInfeasibleAtOnePointLeavesTheOthers) {
  Campaign campaign = SomeCampaignOf(1, 1);
  campaign.points.push_back({.batch = 4096, .context = 128, .time_share = 0});
  run_ = SomeRunOf(campaign);  // Trials: baseline and i0, each at both points.
  Report(1, 0, FailureOf("", FailureKind::kInfeasible, "needs 90 GB of 80"));
  EXPECT_EQ(run_.results.state, CampaignState::kRunning);
  Report(0, 0, SuccessOf(""));
  Report(2, 0, SuccessOf(""));
  EXPECT_EQ(trial(3).state, TrialState::kDone) << "a finding: no resume would change it";
  EXPECT_EQ(trial(3).spec.settled, Standing::kInfeasible);
  EXPECT_EQ(trial(3).reason, "the baseline is infeasible at this point: needs 90 GB of 80");
  EXPECT_EQ(trial(3).spec.settled_reason, trial(3).reason);
  EXPECT_EQ(run_.results.state, CampaignState::kDone);
}

TEST_F(TrialRulesTest, CancelKeepsWhatIsDoneAndResumeMakesTheRestPending) {
  Report(0, 0, SuccessOf(""));
  Report(0, 1, SuccessOf(""));
  const std::string open = Lease(run_, 1, 0);
  Change cancel =
      DecideStop(run_, CampaignState::kCancelled, TrialState::kCancelled, "cancelled", 3000);
  Conclude(run_, cancel);
  ApplyToMemory(cancel, run_);
  EXPECT_EQ(trial(0).state, TrialState::kDone);
  EXPECT_EQ(trial(1).state, TrialState::kCancelled);
  EXPECT_EQ(trial(2).state, TrialState::kCancelled);
  EXPECT_EQ(run_.results.state, CampaignState::kCancelled);
  EXPECT_EQ(cancel.attempts[0].attempt_id, open);
  EXPECT_EQ(cancel.attempts[0].state, AttemptState::kLost);

  Change resume = DecideResume(run_, 4000);
  Conclude(run_, resume);
  ApplyToMemory(resume, run_);
  EXPECT_EQ(run_.results.state, CampaignState::kRunning);
  EXPECT_EQ(run_.results.ended_at_ms, 0);
  EXPECT_EQ(trial(0).state, TrialState::kDone);
  EXPECT_EQ(trial(1).state, TrialState::kPending);
  EXPECT_TRUE(DecideResume(run_, 5000).empty()) << "a second one changes nothing";
}

TEST_F(TrialRulesTest, AResumedTrialStartsItsLostAttemptsAnew) {
  for (int i = 0; i < kMaxLost; ++i) {
    ApplyToMemory(
        DecideLoss(run_, Lease(run_, 1, 0), AttemptState::kLost, "gone", kMaxLost, {}, 2000), run_);
  }
  ASSERT_EQ(trial(1).state, TrialState::kLostOut);
  ApplyToMemory(DecideResume(run_, 4000), run_);
  EXPECT_EQ(trial(1).state, TrialState::kPending);
  EXPECT_EQ(TallyOf(run_, 1).num_lost, 0);
}

TEST_F(TrialRulesTest, AnAttemptWithoutAReportIsAFailureOfItsOwn) {
  const std::string attempt_id = Lease(run_, 1, 0);
  const Change change = DecideTimeout(run_, attempt_id, "no report within 900 s", 2000);
  EXPECT_EQ(change.attempts[0].state, AttemptState::kFailed);
  EXPECT_THAT(change.attempts[0].outcome, HasSubstr("timeout"));
}

TEST_F(TrialRulesTest, ArmsWithDifferentEnvironmentsAreNotPaired) {
  TrialSpec spec = trial(1).spec;
  EXPECT_FALSE(WhyNeverDispatched(spec).has_value());
  spec.variant.process_env["NCCL_ALGO"] = "Ring";
  EXPECT_EQ(WhyNeverDispatched(spec)->kind, FailureKind::kUnsupported);
}

}  // namespace
}  // namespace lastflop
