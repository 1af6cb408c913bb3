// kill -9 of the coordinator: case H19.

#include <gmock/gmock.h>

#include "tests/coordinator/engine_fixture.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::SizeIs;

class EngineRestartTest : public EngineFixture {};

TEST_F(EngineRestartTest, RepeatsNothingThatIsDoneAndEndsWithEveryTrialOnce) {
  // Eight trials on two hosts: 2 done, 2 running, 4 pending.
  const std::string id = Submit(SomeCampaignOf(7));
  const SessionId before = ConnectOn("h1", "w0");
  const SessionId beside = ConnectOn("h2", "w1");
  for (int i = 0; i < 2; ++i) {
    Report(before, SuccessOf(NextLease(before).attempt.attempt_id));
  }
  NextLease(before);
  Sweep();
  const CampaignSummary summary = Summarize(Results(id));
  ASSERT_EQ(summary.num_done, 2);
  ASSERT_EQ(summary.num_running, 2);
  ASSERT_EQ(summary.num_pending, 4);
  TakeLeases(beside);
  Restart();
  // The workers died with it.
  EXPECT_EQ(WorkOff({ConnectOn("h1", "w0"), ConnectOn("h2", "w1")}), 6);
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  int num_accepted = 0;
  for (const AttemptRecord& attempt : results.attempts) {
    num_accepted += attempt.authoritative ? 1 : 0;
  }
  EXPECT_EQ(num_accepted, 8);
  EXPECT_THAT(results.attempts, SizeIs(10));
  EXPECT_EQ(results.trials[0].num_attempts, 1);
  EXPECT_EQ(results.trials[1].num_attempts, 1);
}

TEST_F(EngineRestartTest, AWorkerThatStillRunsItsAttemptGoesOnWithIt) {
  const std::string id = Submit(SomeCampaignOf(0));
  const std::string attempt_id = NextLease(Connect("w0", 77)).attempt.attempt_id;
  Restart();
  Sweep();
  const SessionId again = Connect("w0", 77, {attempt_id});
  Sweep();
  EXPECT_TRUE(TakeLeases(again).empty()) << "it is busy";
  EXPECT_TRUE(Report(again, SuccessOf(attempt_id)).authoritative);
  EXPECT_THAT(Results(id).attempts, SizeIs(1));
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineRestartTest, AWorkerThatDoesNotComeBackLosesItsAttempt) {
  const std::string id = Submit(SomeCampaignOf(0));
  NextLease(Connect("w0"));
  Restart();
  const SessionId w1 = Connect("w1");
  clock_.Advance(options_.timeout);
  ASSERT_TRUE(engine_->Heartbeat(w1, {}).ok());
  Sweep();
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLeased);
  clock_.Advance(milliseconds(1));
  Sweep();
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLost);
  EXPECT_THAT(Results(id).attempts[0].outcome, HasSubstr("worker w0 did not come back"));
  const std::vector<LeaseMessage> leases = TakeLeases(w1);
  ASSERT_THAT(leases, SizeIs(1));
  Report(w1, SuccessOf(leases[0].attempt.attempt_id));
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineRestartTest, ChildrenOfTheLifeBeforeAreNotUsedAgain) {
  Submit(SomeCampaignOf(1));
  const SessionId w0 = Connect("w0", 77);
  const LeaseMessage before = NextLease(w0);
  Report(w0, SuccessOf(before.attempt.attempt_id));
  clock_.Advance(milliseconds(5));
  Restart();
  EXPECT_NE(NextLease(Connect("w0", 77)).launch.launch_key, before.launch.launch_key);
}

TEST_F(EngineRestartTest, DownTimeUsesUpNoWallBudget) {
  Campaign campaign = SomeCampaignOf(1);
  campaign.budget.wall = milliseconds(60000);
  const std::string id = Submit(campaign);
  clock_.Advance(milliseconds(3600000));
  Restart();
  EXPECT_EQ(WorkOff(Connect("w0")), 2);
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineRestartTest, CatchesUpWithWhatTheLifeBeforeHadNoTimeFor) {
  // The last trial's row was written, the campaign's end was not.
  const std::string id = Submit(SomeCampaignOf(0));
  WorkOff(Connect("w0"));
  ASSERT_TRUE(
      database_->ExecuteScript("UPDATE campaigns SET state = 'running', ended_at_ms = NULL").ok());
  Restart();
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineRestartTest, FormerWorkersAreListedAsLost) {
  Connect("w0");
  Restart();
  absl::StatusOr<std::vector<WorkerRow>> rows = WorkerStore(*database_).List();
  ASSERT_TRUE(rows.ok() && rows->size() == 1);
  EXPECT_EQ((*rows)[0].state, WorkerState::kLost);
  EXPECT_TRUE(engine_->Workers().empty());
}

TEST_F(EngineRestartTest, TheFileIsSoundAfterwards) {
  const std::string id = Submit(SomeCampaignOf(2, 2));
  const SessionId w0 = Connect("w0", 77);
  Report(w0, SuccessOf(NextLease(w0).attempt.attempt_id));
  Restart();
  WorkOff(Connect("w0", 78));
  absl::StatusOr<Statement> row = database_->Prepare("PRAGMA integrity_check");
  ASSERT_TRUE(row.ok() && *row->Step());
  EXPECT_EQ(row->Text(0), "ok");
  row = database_->Prepare("PRAGMA foreign_key_check");
  EXPECT_FALSE(*row->Step());
}

}  // namespace
}  // namespace lastflop
