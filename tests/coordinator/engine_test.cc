#include "coordinator/engine.h"

#include <gmock/gmock.h>

#include "coordinator/attempt_allowance.h"
#include "db/event_rows.h"
#include "tests/coordinator/engine_fixture.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

class EngineTest : public EngineFixture {};

TEST_F(EngineTest, RunsEveryTrialInEveryLaunchOnce) {
  const std::string id = Submit(SomeCampaignOf(3, /*launches=*/3));
  EXPECT_EQ(WorkOff(Connect("w0")), 4 * 3);
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  EXPECT_THAT(results.attempts, SizeIs(12));
  EXPECT_EQ(results.machine.device_name, "some cpu");
  for (const TrialRecord& trial : results.trials) {
    EXPECT_EQ(trial.state, TrialState::kDone);
    EXPECT_EQ(trial.num_attempts, 3);
  }
}

TEST_F(EngineTest, TrialsOfALaunchShareItsKey) {
  Submit(SomeCampaignOf(1, /*launches=*/2));
  const SessionId session = Connect("w0");
  std::vector<std::string> keys;
  std::vector<int> launches;
  for (int i = 0; i < 4; ++i) {
    const LeaseMessage lease = NextLease(session);
    keys.push_back(lease.launch.launch_key);
    launches.push_back(lease.launch.launch);
    Report(session, SuccessOf(lease.attempt.attempt_id));
  }
  EXPECT_THAT(launches, ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(keys[2], keys[3]);
  EXPECT_NE(keys[0], keys[2]);
}

TEST_F(EngineTest, ACrashGivesTheNextAttemptFreshChildren) {
  Submit(SomeCampaignOf(1));
  const SessionId session = Connect("w0");
  const LeaseMessage first = NextLease(session);
  Report(session, FailureOf(first.attempt.attempt_id, FailureKind::kCrashed, "signal 11"));
  const LeaseMessage second = NextLease(session);
  EXPECT_EQ(second.attempt.trial_id, first.attempt.trial_id);
  EXPECT_NE(second.attempt.attempt_id, first.attempt.attempt_id);
  EXPECT_NE(second.launch.launch_key, first.launch.launch_key);
}

TEST_F(EngineTest, ATrialThatKillsItsProcessGetsExactlyItsAttemptsAndTheOthersAreDone) {
  const std::string id = Submit(SomeCampaignOf(10));
  const SessionId session = Connect("w0");
  while (true) {
    Sweep();
    const std::vector<LeaseMessage> leases = TakeLeases(session);
    if (leases.empty()) {
      break;
    }
    const AttemptSpec& attempt = leases[0].attempt;
    const bool kills = attempt.intervention_id == "i4";
    const AttemptResult result =
        kills ? FailureOf(attempt.attempt_id, FailureKind::kCrashed, "signal 9")
              : SuccessOf(attempt.attempt_id);
    EXPECT_TRUE(Report(session, result).authoritative) << "it came in time";
    if (kills && Results(id).trials[5].num_attempts == 2) {
      Restart();  // The count goes on across it.
      return [&] {
        const SessionId again = Connect("w0");
        while (true) {
          Sweep();
          const std::vector<LeaseMessage> more = TakeLeases(again);
          if (more.empty()) {
            break;
          }
          const std::string& attempt_id = more[0].attempt.attempt_id;
          Report(again, more[0].attempt.intervention_id == "i4"
                            ? FailureOf(attempt_id, FailureKind::kCrashed, "signal 9")
                            : SuccessOf(attempt_id));
        }
        const CampaignResults results = Results(id);
        EXPECT_EQ(results.state, CampaignState::kDone);
        EXPECT_EQ(results.trials[5].state, TrialState::kFailed);
        EXPECT_EQ(results.trials[5].num_attempts, 3);
        EXPECT_THAT(results.trials[5].reason, HasSubstr("signal 9"));
        EXPECT_EQ(Summarize(results).num_done, 10);
      }();
    }
  }
  FAIL() << "the trial never failed twice";
}

TEST_F(EngineTest, TheSameSubmissionIsOneCampaignAndTheSameFileAgainAnother) {
  const Submission submission{.submission_id = "s", .campaign = SomeCampaignOf(1)};
  const absl::StatusOr<SubmitAnswer> first = engine_->Submit(submission);
  const absl::StatusOr<SubmitAnswer> again = engine_->Submit(submission);
  ASSERT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(first->campaign_id, again->campaign_id);
  EXPECT_EQ(again->num_trials, 2);
  Submission other = submission;
  other.submission_id = "t";
  EXPECT_NE(engine_->Submit(other)->campaign_id, first->campaign_id);
  other.submission_id = "s";
  other.campaign.name = "another one";
  EXPECT_EQ(engine_->Submit(other).status().code(), absl::StatusCode::kInvalidArgument)
      << "it would be lost silently";
}

TEST_F(EngineTest, AWallBudgetIsNotUsedUpBeforeAnythingCouldRun) {
  Campaign campaign = SomeCampaignOf(0);
  campaign.budget.wall = milliseconds(3000);
  const std::string id = Submit(campaign);
  clock_.Advance(milliseconds(10000));  // Workers that take long to start.
  Sweep();
  EXPECT_EQ(Results(id).state, CampaignState::kRunning);
  const SessionId w0 = Connect("w0");
  Report(w0, SuccessOf(NextLease(w0).attempt.attempt_id));
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineTest, RefusesWhatItCannotRunBeforeAnythingIsStored) {
  Campaign campaign = SomeCampaignOf(1);
  campaign.fidelity = Fidelity::kPredicted;
  EXPECT_EQ(engine_->Submit({.submission_id = "s", .campaign = campaign}).status().code(),
            absl::StatusCode::kInvalidArgument);
  campaign = SomeCampaignOf(1);
  campaign.points.clear();
  EXPECT_EQ(engine_->Submit({.submission_id = "s", .campaign = campaign}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ListCampaigns(*database_)->empty());
}

TEST_F(EngineTest, SettlesWhatNobodyCanRunWithItsReason) {
  Campaign campaign = SomeCampaignOf(1);
  campaign.interventions[0].set = {{"process.env", R"({"NCCL_ALGO":"Ring"})"}};
  const std::string id = Submit(campaign);
  const TrialRecord trial = Results(id).trials[1];
  EXPECT_EQ(trial.state, TrialState::kDone);
  EXPECT_EQ(trial.spec.settled, Standing::kUnsupported);
  EXPECT_THAT(trial.reason, HasSubstr("process.env"));
  EXPECT_EQ(WorkOff(Connect("w0")), 1) << "the baseline";
}

TEST_F(EngineTest, AGangThatIsTooSmallWaitsItsGraceAndIsThenUnsupported) {
  const std::string id = Submit(SomeCampaignOf(1, 1, /*num_ranks=*/4));
  Connect("w0");
  Sweep();
  clock_.Advance(options_.gang_grace - milliseconds(1));
  ASSERT_TRUE(engine_->Heartbeat(1, {}).ok());
  Sweep();
  EXPECT_EQ(Results(id).trials[0].state, TrialState::kPending);
  clock_.Advance(milliseconds(1));
  ASSERT_TRUE(engine_->Heartbeat(1, {}).ok());
  Sweep();
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.trials[0].spec.settled, Standing::kUnsupported);
  EXPECT_EQ(results.trials[0].reason, "needs 4 workers on one host, 1 is connected");
  EXPECT_EQ(results.state, CampaignState::kBaselineFailed);
}

TEST_F(EngineTest, AGangHasAllItsMembersAtOnce) {
  const std::string id = Submit(SomeCampaignOf(0, 1, /*num_ranks=*/2));
  const SessionId w0 = Connect("w0");
  Sweep();
  EXPECT_TRUE(TakeLeases(w0).empty());
  const SessionId w1 = Connect("w1");
  const LeaseMessage leader = NextLease(w0);
  const std::vector<LeaseMessage> follower = TakeLeases(w1);
  ASSERT_THAT(follower, SizeIs(1));
  EXPECT_EQ(leader.attempt.attempt_id, follower[0].attempt.attempt_id);
  Report(w0, SuccessOf(leader.attempt.attempt_id));
  EXPECT_THAT(Results(id).attempts[0].worker_ids, ElementsAre("w0", "w1"));
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineTest, AfterTheWallBudgetNothingIsGivenOutAndItCanBeResumed) {
  Campaign campaign = SomeCampaignOf(2);
  campaign.budget.wall = milliseconds(60000);
  const std::string id = Submit(campaign);
  const SessionId session = Connect("w0");
  const LeaseMessage lease = NextLease(session);
  clock_.Advance(milliseconds(60000));
  ASSERT_TRUE(engine_->Heartbeat(session, {lease.attempt.attempt_id}).ok());
  Sweep();
  EXPECT_EQ(Results(id).state, CampaignState::kRunning) << "what runs may end";
  Report(session, SuccessOf(lease.attempt.attempt_id));
  Sweep();
  EXPECT_TRUE(TakeLeases(session).empty());
  CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kOutOfBudget);
  EXPECT_EQ(results.trials[0].state, TrialState::kDone);
  EXPECT_EQ(results.trials[1].state, TrialState::kPending);
  EXPECT_EQ(results.trials[1].reason, "budget.wall of 60 s is used up");

  EXPECT_EQ(*engine_->Resume(id), 2);
  EXPECT_EQ(WorkOff(session), 2);
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineTest, AWaitForADeviceOfOthersUsesUpNoWallBudget) {
  Campaign campaign = SomeCampaignOf(2);
  campaign.budget.wall = milliseconds(60000);
  const std::string id = Submit(campaign);
  const SessionId session = Connect("w0");
  const std::string attempt_id = NextLease(session).attempt.attempt_id;
  clock_.Advance(milliseconds(10000));
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(engine_->Heartbeat(session, {attempt_id}, {attempt_id}).ok());
    Sweep();
    clock_.Advance(milliseconds(10000));
  }
  ASSERT_EQ(Results(id).state, CampaignState::kRunning);
  ASSERT_TRUE(engine_->Heartbeat(session, {attempt_id}).ok());
  Sweep();
  clock_.Advance(milliseconds(10000));
  Report(session, SuccessOf(attempt_id));
  Sweep();
  ASSERT_THAT(TakeLeases(session), SizeIs(1)) << "20 s of 60 s are used up";

  Restart();
  const SessionId again = Connect("w0");
  ASSERT_THAT(NextLease(again).attempt.attempt_id, Not(IsEmpty())) << "it is remembered";
  clock_.Advance(milliseconds(40000));
  ASSERT_TRUE(engine_->Heartbeat(again, {}).ok());
  Report(again, SuccessOf(Results(id).attempts.back().result.attempt_id));
  Sweep();
  EXPECT_TRUE(TakeLeases(again).empty()) << "the rest counts";
  EXPECT_EQ(Results(id).state, CampaignState::kOutOfBudget);
}

TEST_F(EngineTest, WhileOneOfTwoAttemptsMeasuresTheWallBudgetIsUsedUp) {
  Campaign campaign = SomeCampaignOf(3);
  campaign.budget.wall = milliseconds(60000);
  const std::string id = Submit(campaign);
  const SessionId w0 = ConnectOn("h1", "w0");
  const SessionId w1 = ConnectOn("h2", "w1");
  Report(w0, SuccessOf(NextLease(w0).attempt.attempt_id));
  const std::string measuring = NextLease(w0).attempt.attempt_id;
  const std::vector<LeaseMessage> beside = TakeLeases(w1);
  ASSERT_THAT(beside, SizeIs(1));
  const std::string held_up = beside[0].attempt.attempt_id;
  for (int i = 0; i < 6; ++i) {
    clock_.Advance(milliseconds(10000));
    ASSERT_TRUE(engine_->Heartbeat(w0, {measuring}).ok());
    ASSERT_TRUE(engine_->Heartbeat(w1, {held_up}, {held_up}).ok());
    Sweep();
  }
  Report(w0, SuccessOf(measuring));
  Sweep();
  EXPECT_TRUE(TakeLeases(w0).empty());
}

TEST_F(EngineTest, WhatHangsOutlivesTheWallBudgetByItsGraceOnly) {
  Campaign campaign = SomeCampaignOf(2);
  campaign.budget.wall = milliseconds(60000);
  const std::string id = Submit(campaign);
  const SessionId session = Connect("w0");
  Report(session, SuccessOf(NextLease(session).attempt.attempt_id));
  const std::string hung = NextLease(session).attempt.attempt_id;
  const milliseconds grace =
      WallGrace(campaign.measure, NeedsOf(campaign, Results(id).trials[1].spec, /*on_cpu=*/true),
                options_.attempt_deadline);
  clock_.Advance(milliseconds(60000) + grace - milliseconds(1));
  ASSERT_TRUE(engine_->Heartbeat(session, {hung}).ok());
  Sweep();
  EXPECT_EQ(Results(id).state, CampaignState::kRunning) << "what runs may end";
  clock_.Advance(milliseconds(1));
  Sweep();
  ASSERT_THAT(TakeCancels(session), SizeIs(1));
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kOutOfBudget);
  EXPECT_EQ(results.attempts[1].state, AttemptState::kLost) << "no fault of the trial's own";
  EXPECT_EQ(Summarize(results).num_done, 1);
  EXPECT_FALSE(Report(session, FailureOf(hung, FailureKind::kCrashed, "killed")).authoritative);

  EXPECT_EQ(*engine_->Resume(id), 2);
  EXPECT_EQ(WorkOff(session), 2);
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineTest, CancelTellsTheWorkerAndResumeRepeatsNothingThatIsDone) {
  const std::string id = Submit(SomeCampaignOf(2));
  const SessionId session = Connect("w0");
  Report(session, SuccessOf(NextLease(session).attempt.attempt_id));
  const std::string open = NextLease(session).attempt.attempt_id;
  EXPECT_EQ(*engine_->Cancel(id), 2);
  EXPECT_EQ(*engine_->Cancel(id), 0) << "a second call changes nothing";
  ASSERT_THAT(TakeCancels(session), SizeIs(1));
  EXPECT_EQ(Results(id).state, CampaignState::kCancelled);
  const AckMessage ack =
      Report(session, FailureOf(open, FailureKind::kCrashed, "killed on cancel"));
  EXPECT_FALSE(ack.authoritative);
  Sweep();
  EXPECT_EQ(*engine_->Resume(id), 2);
  EXPECT_EQ(WorkOff(session), 2);
  EXPECT_EQ(Summarize(Results(id)).num_done, 3);
  EXPECT_EQ(engine_->Cancel("none").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(EngineTest, AnAttemptWithoutAReportEndsALittleAfterItsDeadline) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId session = Connect("w0");
  const AttemptSpec attempt = NextLease(session).attempt;
  const std::string& attempt_id = attempt.attempt_id;
  EXPECT_LT(attempt.deadline, options_.attempt_deadline);
  clock_.Advance(attempt.deadline + options_.deadline_slack + milliseconds(1));
  ASSERT_TRUE(engine_->Heartbeat(session, {attempt_id}).ok());
  Sweep();
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kFailed);
  EXPECT_THAT(Results(id).attempts[0].outcome, HasSubstr("timeout"));
  EXPECT_THAT(TakeCancels(session), SizeIs(1));
  clock_.Advance(milliseconds(1));
  EXPECT_FALSE(Report(session, SuccessOf(attempt_id)).authoritative) << "it is late";
}

TEST_F(EngineTest, AFullDiskAnswersNothingAndChangesNothing) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId session = Connect("w0");
  const std::string attempt_id = NextLease(session).attempt.attempt_id;
  ASSERT_TRUE(database_->ExecuteScript("PRAGMA max_page_count = 1").ok());
  AttemptResult result = SuccessOf(attempt_id);
  result.samples.resize(20000, result.samples[0]);
  EXPECT_EQ(engine_->AttemptReport(session, result).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(TakeAcks(session).empty()) << "the worker keeps its report";
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLeased);
}

TEST_F(EngineTest, EventsTellTheWholeStoryInOrder) {
  const std::string id = Submit(SomeCampaignOf(0));
  WorkOff(Connect("w0"));
  std::vector<std::string> story;
  const absl::StatusOr<std::vector<CampaignEvent>> events = ReadEvents(*database_, id, 0, 100);
  ASSERT_TRUE(events.ok()) << events.status();
  for (const CampaignEvent& event : *events) {
    story.push_back(event.kind + " " + event.state);
  }
  EXPECT_THAT(story, ElementsAre("campaign running", "trial running", "attempt leased",
                                 "attempt done", "trial done", "campaign done"));
  EXPECT_EQ((*events)[2].current, "baseline at decode b8 c128, launch 1 of 1");
  EXPECT_EQ(events->back().summary.num_done, 1);
}

}  // namespace
}  // namespace lastflop
