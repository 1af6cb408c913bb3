// kill -9 and SIGSTOP of everything, with real processes: cases H16 to H22.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "db/campaign_reader.h"
#include "db/worker_store.h"
#include "tests/e2e/recovery_fixture.h"
#include "worker/device_lock.h"

namespace lastflop {
namespace {

using testing::HasSubstr;

TEST_F(RecoveryTest, AKilledWorkerIsReplacedByOneOfTheSameNameAtOnce) {
  StartCoordinator();
  StartWorker("w0");
  Submit();
  ASSERT_TRUE(Eventually([this] { return NumDone() >= 1; }));
  ASSERT_TRUE(StrikeUntil([this] { return NumIn(AttemptState::kLost) >= 1; }, 0,
                          [this](const std::string& id) {
                            workers_[id]->Signal(SIGKILL);
                            StartWorker(id);
                            return true;
                          }));
  ASSERT_TRUE(WaitForEnd());
  ExpectEveryTrialOnce();
  EXPECT_LE(NumIn(AttemptState::kLost), 2);
}

TEST_F(RecoveryTest, ADeviceThatAnotherProcessHoldsIsWaitedForAndTheHolderNamed) {
  absl::StatusOr<DeviceLock> held = DeviceLock::Acquire("cpu:1", std::chrono::minutes(2));
  ASSERT_TRUE(held.ok()) << held.status();
  StartCoordinator();
  StartWorker("w1");
  Submit();
  // Others may have the host before.
  ASSERT_TRUE(
      workers_["w1"]->WaitForErr(absl::StrCat("waiting for device cpu:1, held by pid ", getpid())))
      << workers_["w1"]->Err();
  { const DeviceLock released = *std::move(held); }
  ASSERT_TRUE(WaitForEnd());
  ExpectEveryTrialOnce();
  EXPECT_EQ(NumIn(AttemptState::kLost), 0);
  const CampaignResults results = Results();
  absl::StatusOr<Database> database = OpenForReading(db());
  ASSERT_TRUE(database.ok()) << database.status();
  const absl::StatusOr<RunState> state = ReadRunState(*database, results.campaign_id);
  ASSERT_TRUE(state.ok()) << state.status();
  // The hold was said after three seconds of it.
  EXPECT_GT(state->wall_from_ms - results.created_at_ms, 2000) << "the wait uses up no budget.wall";
}

TEST_F(RecoveryTest, AStoppedWorkersLateResultIsKeptAndTheWorkerRejoins) {
  StartCoordinator();
  StartWorker("w0");
  Submit();
  ASSERT_TRUE(Eventually([this] { return NumDone() >= 1 && IsMeasuring("w0"); }));
  StartWorker("w1");
  workers_["w0"]->Signal(SIGSTOP);  // The worker alone: its child measures on.
  ASSERT_TRUE(Eventually([this] { return NumIn(AttemptState::kLost) >= 1; }));
  ASSERT_TRUE(Eventually([this] {
    const CampaignResults results = Results();
    return !results.attempts.empty() && results.attempts.back().worker_ids[0] == "w1" &&
           results.attempts.back().authoritative;
  })) << "another worker takes over";
  workers_["w0"]->Signal(SIGCONT);
  ASSERT_TRUE(WaitForEnd());
  ExpectEveryTrialOnce();
  ASSERT_TRUE(Eventually([this] {
    for (const AttemptRecord& attempt : Results().attempts) {
      if (attempt.state == AttemptState::kLost && attempt.has_report) {
        return !attempt.authoritative;
      }
    }
    return false;
  })) << "the late result is kept";
  absl::StatusOr<Database> database = OpenForReading(db());
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE(Eventually([&] {
    const absl::StatusOr<std::vector<WorkerRow>> rows = WorkerStore(*database).List();
    return rows.ok() && (*rows)[0].worker_id == "w0" && (*rows)[0].state != WorkerState::kLost;
  })) << "it has rejoined";
}

TEST_F(RecoveryTest, AMemberStoppedBeforeItReadsItsLeaseCostsTheTrialNothing) {
  StartCoordinator();
  for (const char* id : {"w0", "w1"}) {
    StartWorker(id);
    ASSERT_TRUE(coordinator_->WaitForErr(absl::StrCat("event=worker_connected worker_id=", id)));
  }
  workers_["w1"]->Signal(SIGSTOP);
  SubmitWith("200ms", {"--set", "baseline.parallel.tensor=2"}, /*max_attempts=*/1);
  ASSERT_TRUE(Eventually([this] { return NumIn(AttemptState::kLost) >= 1; }));
  workers_["w1"]->Signal(SIGCONT);
  ASSERT_TRUE(WaitForEnd()) << coordinator_->Err();
  ExpectEveryTrialOnce();
  for (const AttemptRecord& attempt : Results().attempts) {
    EXPECT_FALSE(attempt.result.failure.has_value() &&
                 attempt.result.failure->kind == FailureKind::kTimeout)
        << "it waited for a member that still sat at the old lease: " << attempt.outcome;
  }
}

TEST_F(RecoveryTest, AnAttemptThatIsCancelledSaysWhyAndBlamesNoMemory) {
  StartCoordinator();
  StartWorker("w0");
  Submit("3s");
  ASSERT_TRUE(Eventually([this] { return IsMeasuring("w0"); }));
  Program cancel(folder_.path(), "lastflop", {"cancel", "tiny", "--server", server()});
  ASSERT_EQ(cancel.Wait(), 0) << cancel.Err();
  EXPECT_TRUE(workers_["w0"]->WaitForErr("cancelled: the campaign ended: cancelled"))
      << workers_["w0"]->Err();
  EXPECT_THAT(workers_["w0"]->Err(), testing::Not(HasSubstr("out of memory")));
}

TEST_F(RecoveryTest, AKilledCoordinatorGoesOnFromItsFileAndRepeatsNothing) {
  StartCoordinator();
  StartWorker("w0");
  Submit();
  ASSERT_TRUE(Eventually([this] { return NumDone() >= 2 && IsMeasuring("w0"); }));
  const CampaignResults before = Results();
  Program watch(folder_.path(), "lastflop", {"watch", before.campaign_id, "--server", server()});
  ASSERT_TRUE(watch.WaitForErr("trials"));
  coordinator_->Signal(SIGKILL);
  coordinator_->Wait();
  ASSERT_TRUE(watch.WaitForErr("waiting 10 s for its return"));
  ASSERT_NO_FATAL_FAILURE(StartCoordinator());
  ASSERT_TRUE(WaitForEnd()) << coordinator_->Err() << workers_["w0"]->Err();
  EXPECT_EQ(watch.Wait(), 0) << watch.Err();
  ExpectEveryTrialOnce();
  const CampaignResults after = Results();
  for (size_t i = 0; i < before.trials.size(); ++i) {
    if (before.trials[i].state == TrialState::kDone) {
      EXPECT_EQ(after.trials[i].num_attempts, before.trials[i].num_attempts) << i;
    }
  }
}

TEST_F(RecoveryTest, EverythingKilledAtOnceIsNoLoss) {
  StartCoordinator();
  StartWorker("w0");
  Submit();
  ASSERT_TRUE(Eventually([this] { return NumDone() >= 2 && IsMeasuring("w0"); }));
  coordinator_->Signal(SIGKILL);
  workers_["w0"]->Signal(SIGKILL);
  coordinator_->Wait();
  StartCoordinator();
  StartWorker("w0");
  ASSERT_TRUE(WaitForEnd());
  ExpectEveryTrialOnce();
}

TEST_F(RecoveryTest, ATrialWhoseChildAlwaysDiesGetsExactlyItsAttempts) {
  StartCoordinator();
  StartWorker("w0");
  Submit("1500ms");  // Long enough to be caught at work, however busy the machine.
  bool has_restarted = false;
  // The child is killed whenever it works on t0003, and the coordinator once in between.
  ASSERT_TRUE(Eventually([&] {
    int num_failed = 0;
    bool is_running = false;
    const CampaignResults results = Results();
    for (const AttemptRecord& attempt : results.attempts) {
      const bool is_doomed = attempt.result.trial_id == "t0003";
      num_failed += is_doomed && attempt.state == AttemptState::kFailed ? 1 : 0;
      const bool is_open =
          attempt.state == AttemptState::kLeased || attempt.state == AttemptState::kRunning;
      is_running = is_running || (is_doomed && is_open);
    }
    if (is_running) {
      for (const pid_t child : ChildrenOf(workers_["w0"]->pid())) {
        kill(child, SIGKILL);
      }
    }
    if (num_failed >= 1 && !has_restarted) {
      has_restarted = true;
      coordinator_->Signal(SIGKILL);
      coordinator_->Wait();
      StartCoordinator();
    }
    return !results.trials.empty() && results.trials[2].state == TrialState::kFailed;
  })) << coordinator_->Err();
  ASSERT_TRUE(WaitForEnd());
  const CampaignResults results = Results();
  const TrialRecord& trial = results.trials[2];
  EXPECT_EQ(trial.spec.trial_id, "t0003");
  EXPECT_THAT(trial.reason, HasSubstr("signal 9"));
  int num_failed = 0;
  for (const AttemptRecord& attempt : results.attempts) {
    const bool is_doomed = attempt.result.trial_id == "t0003";
    num_failed += is_doomed && attempt.state == AttemptState::kFailed ? 1 : 0;
  }
  EXPECT_EQ(num_failed, 3);
  EXPECT_EQ(Summarize(results).num_done, static_cast<int>(results.trials.size()) - 1);
}

TEST_F(RecoveryTest, AKilledRankEndsItsTrialWithItsNumberAndTheNextOnePasses) {
  StartCoordinator();
  StartWorker("w0");
  StartWorker("w1");
  SubmitWith("400ms", {"--set", "baseline.parallel.tensor=2"});
  const auto reasons = [this] {
    std::string all;
    for (const AttemptRecord& attempt : Results().attempts) {
      if (attempt.state == AttemptState::kFailed && attempt.result.failure.has_value()) {
        all += attempt.result.failure->message + "\n";
      }
    }
    return all;
  };
  ASSERT_TRUE(Eventually([this] { return NumDone() >= 1; }));
  ASSERT_TRUE(StrikeUntil([&] { return reasons().find("signal 9") != std::string::npos; }, 1,
                          [this](const std::string& id) {
                            const std::vector<pid_t> children = ChildrenOf(workers_[id]->pid());
                            for (const pid_t child : children) {
                              kill(child, SIGKILL);
                            }
                            return false;  // It may have been the attempt before's: again.
                          }))
      << reasons();
  ASSERT_TRUE(WaitForEnd());
  ExpectEveryTrialOnce();
  EXPECT_THAT(reasons(), HasSubstr("rank 1"));
}

TEST_F(RecoveryTest, AForeignWriteLockForFiveSecondsFailsNoPollAndLosesNothing) {
  StartCoordinator();
  StartWorker("w0");
  Submit();
  ASSERT_TRUE(Eventually([this] { return NumDone() >= 1 && IsMeasuring("w0"); }));
  absl::StatusOr<Database> foreign = Database::Open(db(), Database::Mode::kReadWrite);
  ASSERT_TRUE(foreign.ok()) << foreign.status();
  ASSERT_TRUE(foreign->ExecuteScript("BEGIN IMMEDIATE").ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (std::chrono::steady_clock::now() < end) {
    Program show(folder_.path(), "lastflop", {"show", "tiny", "--server", server()});
    ASSERT_EQ(show.Wait(), 0) << show.Err();
  }
  ASSERT_TRUE(foreign->ExecuteScript("COMMIT").ok());
  ASSERT_TRUE(WaitForEnd());
  ExpectEveryTrialOnce();
  EXPECT_EQ(NumIn(AttemptState::kLost), 0) << "the lock was held for longer than the timeout";
}

TEST_F(RecoveryTest, ASecondLiveWorkerWithTheSameNameIsRefused) {
  StartCoordinator();
  StartWorker("w0");
  ASSERT_TRUE(coordinator_->WaitForErr("event=worker_connected")) << coordinator_->Err();
  Program second(folder_.path(), "lastflop-worker",
                 {"--server", server(), "--device", "cpu:0", "--id", "w0"});
  EXPECT_NE(second.Wait(), 0);
  EXPECT_THAT(second.Err(), HasSubstr("is connected already"));
}

TEST_F(RecoveryTest, ASecondCoordinatorOnTheSameFileOrAddressEndsAndSaysSo) {
  StartCoordinator();
  Program same_file(folder_.path(), "lastflopd", {"--listen", "127.0.0.1:0", "--db", db()});
  EXPECT_EQ(same_file.Wait(), 2);
  EXPECT_THAT(same_file.Err(), HasSubstr("another coordinator"));
  Program same_address(folder_.path(), "lastflopd",
                       {"--listen", server(), "--db", folder_.path() + "/other.db"});
  EXPECT_EQ(same_address.Wait(), 2);
  EXPECT_THAT(same_address.Err(), HasSubstr("cannot listen on"));
}

TEST_F(RecoveryTest, SigtermEndsTheCoordinatorInOrder) {
  StartCoordinator();
  coordinator_->Signal(SIGTERM);
  EXPECT_EQ(coordinator_->Wait(), 0) << coordinator_->Err();
}

}  // namespace
}  // namespace lastflop
