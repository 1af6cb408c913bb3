// Workers that die, stop, come back and misbehave: cases H16, H17 and H22.

#include <gmock/gmock.h>

#include "tests/coordinator/engine_fixture.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class EngineWorkersTest : public EngineFixture {
 protected:
  void BeSilentFor(milliseconds duration) { clock_.Advance(duration); }
};

TEST_F(EngineWorkersTest, AKilledWorkersTrialIsRetriedElsewhereAndLostIsNotFailed) {
  const std::string id = Submit(SomeCampaignOf(2));
  const SessionId w0 = Connect("w0");
  const SessionId w1 = Connect("w1");
  NextLease(w0);
  BeSilentFor(options_.timeout + milliseconds(1));
  ASSERT_TRUE(engine_->Heartbeat(w1, {}).ok());
  Sweep();
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLost);
  EXPECT_THAT(Results(id).attempts[0].outcome, HasSubstr("worker w0 was silent for"));
  EXPECT_EQ(WorkOff(w1), 3);
  EXPECT_EQ(Summarize(Results(id)).num_done, 3);
}

TEST_F(EngineWorkersTest, ADeadProcessOnThisHostIsNotWaitedFor) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0", /*pid=*/77);
  NextLease(w0);
  dead_pids_.insert(77);
  ASSERT_TRUE(engine_->Disconnected(w0).ok());
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLost);
  EXPECT_EQ(Results(id).attempts[0].outcome, "worker w0 ended");
}

TEST_F(EngineWorkersTest, ALateResultIsKeptWithoutAuthorityAndTheWorkerRejoins) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0");
  const SessionId w1 = Connect("w1");
  const std::string late = NextLease(w0).attempt.attempt_id;
  ASSERT_TRUE(engine_->AttemptStarted(w0, late).ok());
  BeSilentFor(options_.timeout + milliseconds(1));  // SIGSTOP.
  ASSERT_TRUE(engine_->Heartbeat(w1, {}).ok());
  Sweep();
  const std::vector<LeaseMessage> leases = TakeLeases(w1);
  ASSERT_THAT(leases, SizeIs(1));
  EXPECT_TRUE(Report(w1, SuccessOf(leases[0].attempt.attempt_id)).authoritative);

  ASSERT_TRUE(engine_->Heartbeat(w0, {late}).ok());  // SIGCONT.
  EXPECT_THAT(TakeCancels(w0), SizeIs(1)) << "its campaign has ended, it may stop";
  const AckMessage ack = Report(w0, SuccessOf(late));
  EXPECT_FALSE(ack.authoritative);
  EXPECT_THAT(ack.message, HasSubstr("the attempt is lost"));
  const AckMessage repeated = Report(w0, SuccessOf(late));
  EXPECT_EQ(repeated.authoritative, ack.authoritative);
  EXPECT_EQ(repeated.message, ack.message) << "a repeat gets the first one's answer";

  const CampaignResults results = Results(id);
  ASSERT_THAT(results.attempts, SizeIs(2));
  EXPECT_TRUE(results.attempts[0].has_report);
  EXPECT_FALSE(results.attempts[0].authoritative);
  EXPECT_TRUE(results.attempts[1].authoritative);

  Submit(SomeCampaignOf(0));
  NextLease(w0);  // It has rejoined.
}

TEST_F(EngineWorkersTest, AWorkerThatRejoinsIsNotIdleBeforeItDroppedItsOldAttempt) {
  Submit(SomeCampaignOf(2));
  const SessionId w0 = Connect("w0");
  const std::string old = NextLease(w0).attempt.attempt_id;
  ASSERT_TRUE(engine_->AttemptStarted(w0, old).ok());
  BeSilentFor(options_.timeout + milliseconds(1));
  Sweep();
  ASSERT_TRUE(engine_->Heartbeat(w0, {old}).ok());
  Sweep();
  EXPECT_THAT(TakeLeases(w0), IsEmpty());
  EXPECT_THAT(TakeCancels(w0), IsEmpty()) << "its result is still wanted, if only to be kept";
  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  NextLease(w0);
}

TEST_F(EngineWorkersTest, ALeaseThatLiesUnreadInTheStreamOfASilentWorkerIsCancelledBeforeTheNext) {
  Submit(SomeCampaignOf(0, 1, /*num_ranks=*/2));
  const SessionId w0 = Connect("w0");
  const SessionId w1 = Connect("w1");
  const std::string first = NextLease(w0).attempt.attempt_id;
  ASSERT_TRUE(engine_->AttemptStarted(w0, first).ok());
  BeSilentFor(options_.timeout + milliseconds(1));  // w1 was stopped before it read its lease.
  ASSERT_TRUE(engine_->Heartbeat(w0, {first}).ok());
  Sweep();
  ASSERT_THAT(TakeCancels(w0), SizeIs(1));
  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  ASSERT_TRUE(engine_->Heartbeat(w1, {}).ok());  // It runs again, and has not read it yet.
  Sweep();
  std::vector<std::string> stream;
  for (const Outgoing& message : engine_->TakeOutgoing()) {
    if (const auto* cancel = std::get_if<CancelMessage>(&message.message);
        cancel != nullptr && message.session == w1) {
      stream.push_back("cancel " + cancel->attempt_id);
    } else if (std::holds_alternative<LeaseMessage>(message.message) && message.session == w1) {
      stream.push_back("lease");
    }
  }
  EXPECT_THAT(stream, testing::ElementsAre("cancel " + first, "lease"));
}

TEST_F(EngineWorkersTest, AGangThatWaitedForAMemberThatNeverStartedIsLostAndNotFailed) {
  Campaign campaign = SomeCampaignOf(0, 1, /*num_ranks=*/2);
  campaign.measure.max_attempts = 1;
  const std::string id = Submit(campaign);
  const SessionId w0 = Connect("w0");
  const SessionId w1 = Connect("w1");
  const std::string first = NextLease(w0).attempt.attempt_id;
  ASSERT_TRUE(engine_->AttemptStarted(w0, first).ok());
  Report(w0, FailureOf(first, FailureKind::kTimeout, "rank 1 of 2 did not come", 0));
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLost);
  EXPECT_THAT(Results(id).attempts[0].outcome, HasSubstr("worker w1 never started it: rank 1"));

  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  ASSERT_TRUE(engine_->Heartbeat(w1, {}).ok());
  const std::string second = NextLease(w0).attempt.attempt_id;
  ASSERT_TRUE(engine_->AttemptStarted(w0, second).ok());
  ASSERT_TRUE(engine_->AttemptStarted(w1, second).ok());
  Report(w0, FailureOf(second, FailureKind::kTimeout, "no result after 60 s", 0));
  EXPECT_EQ(Results(id).attempts[1].state, AttemptState::kFailed) << "all of them were at work";
}

TEST_F(EngineWorkersTest, ALongKernelAloneNeverLosesItsWorker) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0");
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  for (int i = 0; i < 30; ++i) {
    BeSilentFor(options_.timeout / 2);
    ASSERT_TRUE(engine_->Heartbeat(w0, {attempt_id}).ok());
    Sweep();
  }
  EXPECT_TRUE(Report(w0, SuccessOf(attempt_id)).authoritative);
}

TEST_F(EngineWorkersTest, AHeartbeatThatWaitsItsTurnCounts) {
  // The engine was busy, with a locked database say, while the message lay in its inbox.
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0");
  NextLease(w0);
  BeSilentFor(options_.timeout * 2);
  ASSERT_TRUE(engine_->Sweep({{w0, clock_.Monotonic()}}).ok());
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLeased);
}

TEST_F(EngineWorkersTest, ABrokenStreamMayComeBackWithItsAttempt) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0", 77);
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  ASSERT_TRUE(engine_->Disconnected(w0).ok());
  Sweep();
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLeased);
  const SessionId again = Connect("w0", 77, {attempt_id});
  EXPECT_TRUE(Report(again, SuccessOf(attempt_id)).authoritative);
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineWorkersTest, AWorkerThatComesBackWithoutItsAttemptHasLostIt) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0", 77);
  NextLease(w0);
  ASSERT_TRUE(engine_->Disconnected(w0).ok());
  const SessionId again = Connect("w0", 78);
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLost);
  NextLease(again);
}

TEST_F(EngineWorkersTest, TwoLiveWorkersWithOneIdAreNotBothTakenIn) {
  Connect("w0", 77);
  const SessionId second = Connect("w0", 78);
  const std::optional<std::string> refusal = TakeRefusal(second);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_THAT(*refusal, HasSubstr("worker w0 is connected already (process 77"));
  dead_pids_.insert(77);
  const SessionId third = Connect("w0", 79);
  EXPECT_FALSE(TakeRefusal(third).has_value()) << "a killed worker restarting gets in at once";
}

TEST_F(EngineWorkersTest, WhenOneMemberDiesTheOthersAreToldAndItIsNoFailure) {
  const std::string id = Submit(SomeCampaignOf(0, 1, /*num_ranks=*/2));
  const SessionId w0 = Connect("w0", 77);
  const SessionId w1 = Connect("w1", 78);
  const LeaseMessage first = NextLease(w0);
  TakeLeases(w1);
  dead_pids_.insert(78);
  ASSERT_TRUE(engine_->Disconnected(w1).ok());
  ASSERT_THAT(TakeCancels(w0), SizeIs(1));
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLost);

  const SessionId again = Connect("w1", 79);
  Sweep();
  EXPECT_THAT(TakeLeases(again), IsEmpty()) << "the leader still drops the old attempt";
  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  const LeaseMessage second = NextLease(w0);
  EXPECT_NE(second.launch.launch_key, first.launch.launch_key);
  EXPECT_NE(second.place.rendezvous, first.place.rendezvous);
}

TEST_F(EngineWorkersTest, ALeaderThatMissesADeadRankReportsALossNotAFailure) {
  const std::string id = Submit(SomeCampaignOf(0, 1, /*num_ranks=*/2));
  const SessionId w0 = Connect("w0", 77);
  const SessionId w1 = Connect("w1", 78);
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  ASSERT_TRUE(engine_->Disconnected(w1).ok());  // Its process lives, its stream is broken.
  Report(w0, FailureOf(attempt_id, FailureKind::kRankLost, "rank 1 ended", 1));
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLost);
}

TEST_F(EngineWorkersTest, AMemberWhoseChildDiedNamesTheCauseBeforeTheLeader) {
  const std::string id = Submit(SomeCampaignOf(0, 1, /*num_ranks=*/2));
  const SessionId w0 = Connect("w0");
  const SessionId w1 = Connect("w1");
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  EXPECT_TRUE(
      Report(w1, FailureOf(attempt_id, FailureKind::kCrashed, "signal 9", 1)).authoritative);
  Report(w0, FailureOf(attempt_id, FailureKind::kRankLost, "rank 1 ended", 1));
  const AttemptRecord attempt = Results(id).attempts[0];
  EXPECT_EQ(attempt.state, AttemptState::kFailed);
  EXPECT_EQ(attempt.result.failure->message, "signal 9");
  EXPECT_EQ(attempt.result.failure->rank, 1);
}

TEST_F(EngineWorkersTest, AFailedMemberEndsTheOthersAtOnceAndTheyAreNotIdleBefore) {
  const std::string id = Submit(SomeCampaignOf(0, 1, /*num_ranks=*/2));
  const SessionId w0 = Connect("w0");
  const SessionId w1 = Connect("w1");
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  TakeLeases(w1);
  Report(w1, FailureOf(attempt_id, FailureKind::kCrashed, "signal 9", 1));
  const std::vector<CancelMessage> cancels = TakeCancels(w0);
  ASSERT_EQ(cancels.size(), 1u);
  EXPECT_EQ(cancels[0].attempt_id, attempt_id);
  EXPECT_THAT(cancels[0].reason, HasSubstr("signal 9"));
  EXPECT_TRUE(TakeCancels(w1).empty()) << "who failed has nothing to drop";
  Sweep();
  EXPECT_TRUE(TakeLeases(w0).empty()) << "it may still hold the attempt";
  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  Sweep();
  EXPECT_EQ(TakeLeases(w0).size(), 1u);
  EXPECT_EQ(TakeLeases(w1).size(), 1u);
}

TEST_F(EngineWorkersTest, ARefusedAttemptIsNoFailureAndGoesToAnotherWorker) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0");
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  const SessionId w1 = Connect("w1");
  ASSERT_TRUE(engine_->AttemptRefused(w0, attempt_id, "the plan hashes differently").ok());
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kRefused);
  Report(w1, SuccessOf(NextLease(w1).attempt.attempt_id));
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineWorkersTest, AnAttemptThatFoundTheDeviceHeldIsLostAndTheSameWorkerGetsTheNext) {
  Campaign campaign = SomeCampaignOf(0);
  campaign.measure.max_attempts = 1;
  const std::string id = Submit(campaign);
  const SessionId w0 = Connect("w0");
  for (int time = 0; time < 2; ++time) {
    const std::string attempt_id = NextLease(w0).attempt.attempt_id;
    ASSERT_TRUE(
        engine_->AttemptRefused(w0, attempt_id, "cpu:0 is still held", AttemptState::kLost).ok());
    const AttemptRecord attempt = Results(id).attempts.back();
    EXPECT_EQ(attempt.state, AttemptState::kLost);
    EXPECT_EQ(attempt.outcome, "worker w0: cpu:0 is still held");
  }
  Report(w0, SuccessOf(NextLease(w0).attempt.attempt_id));
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(EngineWorkersTest, WhatEveryWorkerRefusesIsLostOutWithTheReason) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0");
  ASSERT_TRUE(engine_->AttemptRefused(w0, NextLease(w0).attempt.attempt_id, "hash differs").ok());
  Sweep();
  clock_.Advance(options_.gang_grace);
  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  Sweep();
  EXPECT_EQ(Results(id).trials[0].state, TrialState::kLostOut);
  EXPECT_THAT(Results(id).trials[0].reason, HasSubstr("hash differs"));
}

TEST_F(EngineWorkersTest, TheCoordinatorsOwnLinesAreAmongTheLogs) {
  const SessionId w0 = Connect("w0");
  ASSERT_TRUE(engine_->Disconnected(w0).ok());
  const auto lines = WorkerStore(*database_).ReadLogs("coordinator", 0, 10);
  ASSERT_TRUE(lines.ok()) << lines.status();
  ASSERT_EQ(lines->size(), 3u);
  EXPECT_THAT((*lines)[0].line, HasSubstr("event=coordinator_started pid="));
  EXPECT_THAT((*lines)[1].line, HasSubstr("event=worker_connected worker_id=w0 device=cpu:"));
  EXPECT_EQ((*lines)[2].line, "event=worker_disconnected worker_id=w0");
  EXPECT_EQ((*lines)[2].severity, "warning");
}

TEST_F(EngineWorkersTest, AReportOfAStrangerChangesNothing) {
  const std::string id = Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0");
  const SessionId w1 = Connect("w1");
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  EXPECT_FALSE(Report(w1, SuccessOf(attempt_id)).authoritative);
  EXPECT_FALSE(Report(w1, SuccessOf("no-such-attempt")).authoritative);
  EXPECT_EQ(Results(id).attempts[0].state, AttemptState::kLeased);
  EXPECT_TRUE(Report(w0, SuccessOf(attempt_id)).authoritative);
}

TEST_F(EngineWorkersTest, FailingAKnownGoodBaselineTwiceQuarantinesAndDoesNotCount) {
  const std::string id = Submit(SomeCampaignOf(0, /*launches=*/3));
  const SessionId w0 = Connect("w0");
  Report(w0, SuccessOf(NextLease(w0).attempt.attempt_id));
  Report(w0, FailureOf(NextLease(w0).attempt.attempt_id, FailureKind::kCrashed, "signal 11"));
  Report(w0, FailureOf(NextLease(w0).attempt.attempt_id, FailureKind::kCrashed, "signal 11"));
  const std::vector<WorkerView> workers = engine_->Workers();
  ASSERT_THAT(workers, SizeIs(1));
  EXPECT_EQ(workers[0].row.state, WorkerState::kQuarantined);
  EXPECT_THAT(workers[0].row.reason, HasSubstr("baseline that is known to work"));
  EXPECT_EQ(Results(id).attempts[2].state, AttemptState::kLost);
  Sweep();
  EXPECT_THAT(TakeLeases(w0), IsEmpty());

  const SessionId w1 = Connect("w1");
  EXPECT_EQ(WorkOff(w1), 2);
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

// A campaign on one rank with four points, in which i0 crashes and i1 needs two workers.
class BadInterventionTest : public EngineWorkersTest {
 protected:
  static Campaign TheCampaign() {
    Campaign campaign = SomeCampaignOf(2);
    campaign.points.clear();
    for (const int batch : {1, 2, 4, 8}) {
      campaign.points.push_back({.batch = batch, .context = 128, .time_share = 0.25});
    }
    campaign.interventions[1].set = {{"parallel.tensor", "2"}};
    campaign.measure.max_attempts = 1;
    return campaign;
  }

  bool IsOf(const LeaseMessage& lease, const std::string& intervention_id,
            const CampaignResults& results) const {
    for (const TrialRecord& trial : results.trials) {
      if (trial.spec.trial_id == lease.attempt.trial_id) {
        return trial.spec.intervention_id == intervention_id;
      }
    }
    return false;
  }
};

TEST_F(BadInterventionTest, ThatFailsAtEveryPointQuarantinesNobodyAndCostsTheOthersNothing) {
  const std::string id = Submit(TheCampaign());
  const std::vector<SessionId> sessions = {Connect("w0"), Connect("w1")};
  for (int num = -1; num != 0;) {
    num = 0;
    Sweep();
    for (const SessionId session : sessions) {
      for (const LeaseMessage& lease : TakeLeases(session)) {
        ++num;
        Report(session,
               IsOf(lease, "i0", Results(id))
                   ? FailureOf(lease.attempt.attempt_id, FailureKind::kCrashed, "signal 11")
                   : SuccessOf(lease.attempt.attempt_id));
      }
    }
  }
  for (const WorkerView& worker : engine_->Workers()) {
    EXPECT_EQ(worker.row.state, WorkerState::kIdle) << worker.row.reason;
  }
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  for (const TrialRecord& trial : results.trials) {
    const bool is_bad = trial.spec.intervention_id == "i0";
    EXPECT_EQ(trial.state, is_bad ? TrialState::kFailed : TrialState::kDone) << trial.reason;
    EXPECT_FALSE(trial.spec.settled.has_value()) << trial.reason;
  }
}

TEST_F(BadInterventionTest, WhatOnlyAQuarantinedWorkerCouldRunIsLostOutAndNamesIt) {
  options_.expected_workers = 2;
  Restart();
  Campaign campaign = TheCampaign();
  campaign.interventions.erase(campaign.interventions.begin());
  campaign.measure.launches = 3;
  campaign.measure.max_attempts = 3;
  const std::string id = Submit(campaign);
  const SessionId w0 = Connect("w0");
  // All first launches of the baseline, then one that is known to work fails twice.
  for (int i = 0; i < 4; ++i) {
    Report(w0, SuccessOf(NextLease(w0).attempt.attempt_id));
  }
  for (int i = 0; i < 2; ++i) {
    Report(w0, FailureOf(NextLease(w0).attempt.attempt_id, FailureKind::kCrashed, "signal 11"));
  }
  const SessionId w1 = Connect("w1");
  Sweep();
  for (const LeaseMessage& lease : TakeLeases(w1)) {
    Report(w1, SuccessOf(lease.attempt.attempt_id));
  }
  clock_.Advance(options_.gang_grace - milliseconds(1));
  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  ASSERT_TRUE(engine_->Heartbeat(w1, {}).ok());
  WorkOff(w1);
  for (const TrialRecord& trial : Results(id).trials) {
    EXPECT_NE(trial.state, TrialState::kLostOut) << "a quarantined worker is not here";
  }
  clock_.Advance(milliseconds(1));
  Sweep();
  for (const TrialRecord& trial : Results(id).trials) {
    if (trial.spec.intervention_id == "i1") {
      EXPECT_EQ(trial.state, TrialState::kLostOut);
      EXPECT_EQ(trial.reason,
                "needs 2 workers on one host, 1 is connected, and worker w0 is quarantined (it "
                "failed a baseline that is known to work, twice in a row)");
    }
  }
}

TEST_F(EngineWorkersTest, ACampaignDoesNotHangWhenEveryWorkerIsQuarantined) {
  const std::string id = Submit(SomeCampaignOf(0, /*launches=*/3));
  const SessionId w0 = Connect("w0");
  Report(w0, SuccessOf(NextLease(w0).attempt.attempt_id));
  for (int i = 0; i < 2; ++i) {
    Report(w0, FailureOf(NextLease(w0).attempt.attempt_id, FailureKind::kCrashed, "signal 11"));
  }
  clock_.Advance(options_.gang_grace);
  ASSERT_TRUE(engine_->Heartbeat(w0, {}).ok());
  Sweep();
  EXPECT_EQ(Results(id).trials[0].state, TrialState::kLostOut);
  EXPECT_THAT(Results(id).trials[0].reason, HasSubstr("quarantined"));
  EXPECT_NE(Results(id).state, CampaignState::kRunning);
}

TEST_F(EngineWorkersTest, ListsWorkersWithWhatTheyRun) {
  Submit(SomeCampaignOf(0));
  const SessionId w0 = Connect("w0");
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  engine_->AttemptProgress(w0, attempt_id, "sampling", 12, 1.25);
  std::vector<WorkerView> workers = engine_->Workers();
  EXPECT_EQ(workers[0].row.state, WorkerState::kBusy);
  EXPECT_EQ(workers[0].current,
            "baseline at decode b8 c128, launch 1 of 1: sampling, 12 pairs, 1.250x");
  Report(w0, SuccessOf(attempt_id));
  workers = engine_->Workers();
  EXPECT_EQ(workers[0].row.state, WorkerState::kIdle);
  EXPECT_EQ(workers[0].row.num_done, 1);
  EXPECT_EQ(workers[0].current, "");
}

}  // namespace
}  // namespace lastflop
