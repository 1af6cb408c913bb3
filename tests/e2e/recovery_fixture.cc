#include "tests/e2e/recovery_fixture.h"

#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "db/campaign_reader.h"

namespace lastflop {

using std::chrono::milliseconds;

bool Eventually(const std::function<bool()>& is_true, std::chrono::seconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!is_true()) {
    if (std::chrono::steady_clock::now() > end) {
      return false;
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

void RecoveryTest::StartCoordinator() {
  coordinator_ = std::make_unique<Program>(
      folder_.path(), "lastflopd",
      std::vector<std::string>{"--listen", server(), "--db", db(), "--heartbeat-ms", "100",
                               "--timeout-ms", "2000"});
  ASSERT_TRUE(coordinator_->WaitForErr("event=listening")) << coordinator_->Err();
}

void RecoveryTest::StartWorker(const std::string& id) {
  workers_[id].reset();
  workers_[id] =
      std::make_unique<Program>(folder_.path(), "lastflop-worker",
                                std::vector<std::string>{"--server", server(), "--device",
                                                         "cpu:" + id.substr(1), "--id", id});
}

void RecoveryTest::SubmitWith(const std::string& max_time, const std::vector<std::string>& flags,
                              int max_attempts) {
  const std::string file = WriteTinyCampaign(
      folder_, kTinyInterventions,
      absl::StrCat("launches: 1, min_pairs: 4, half_width: 0.0001%, max_attempts: ", max_attempts,
                   ", max_time: ", max_time));
  std::vector<std::string> arguments = {"submit", file, "--server", server()};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  Program submit(folder_.path(), "lastflop", arguments);
  ASSERT_EQ(submit.Wait(), 0) << submit.Err();
}

CampaignResults RecoveryTest::Results() const {
  absl::StatusOr<Database> database = OpenForReading(db());
  if (!database.ok()) {
    return {};
  }
  const absl::StatusOr<std::string> id = ResolveCampaign(*database, "");
  if (!id.ok()) {
    return {};
  }
  absl::StatusOr<CampaignResults> results = ReadCampaign(*database, *id);
  return results.ok() ? *std::move(results) : CampaignResults();
}

int RecoveryTest::NumDone() const { return Summarize(Results()).num_done; }

int RecoveryTest::NumIn(AttemptState state) const {
  int num = 0;
  for (const AttemptRecord& attempt : Results().attempts) {
    num += attempt.state == state ? 1 : 0;
  }
  return num;
}

bool RecoveryTest::IsMeasuring(const std::string& id) const {
  for (const AttemptRecord& attempt : Results().attempts) {
    if (attempt.state == AttemptState::kRunning && attempt.worker_ids[0] == id) {
      return true;
    }
  }
  return false;
}

bool RecoveryTest::StrikeUntil(
    const std::function<bool()>& is_broken, size_t rank,
    const std::function<bool(const std::string& worker_id)>& strike) const {
  std::set<std::string> struck;
  return Eventually([&] {
    if (is_broken()) {
      return true;
    }
    for (const AttemptRecord& attempt : Results().attempts) {
      const std::string& id = attempt.result.attempt_id;
      if (attempt.state == AttemptState::kRunning && attempt.worker_ids.size() > rank &&
          struck.count(id) == 0 && strike(attempt.worker_ids[rank])) {
        struck.insert(id);
        break;
      }
    }
    return false;
  });
}

bool RecoveryTest::WaitForEnd() const {
  return Eventually([this] {
    const CampaignResults results = Results();
    return !results.campaign_id.empty() && results.state != CampaignState::kRunning;
  });
}

void RecoveryTest::ExpectEveryTrialOnce() const {
  const CampaignResults results = Results();
  EXPECT_EQ(results.state, CampaignState::kDone) << results.reason;
  std::map<std::string, int> accepted;
  for (const AttemptRecord& attempt : results.attempts) {
    accepted[attempt.result.trial_id] += attempt.authoritative ? 1 : 0;
    EXPECT_NE(attempt.state, AttemptState::kLeased);
    EXPECT_NE(attempt.state, AttemptState::kRunning);
  }
  for (const TrialRecord& trial : results.trials) {
    EXPECT_EQ(trial.state, TrialState::kDone) << trial.spec.trial_id << ": " << trial.reason;
    if (!trial.spec.settled.has_value()) {
      EXPECT_EQ(accepted[trial.spec.trial_id], 1) << trial.spec.trial_id;
    }
  }
  absl::StatusOr<Database> database = OpenForReading(db());
  ASSERT_TRUE(database.ok()) << database.status();
  absl::StatusOr<Statement> row = database->Prepare("PRAGMA integrity_check");
  ASSERT_TRUE(row.ok() && *row->Step());
  EXPECT_EQ(row->Text(0), "ok");
}

}  // namespace lastflop
