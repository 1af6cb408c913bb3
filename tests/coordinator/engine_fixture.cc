#include "tests/coordinator/engine_fixture.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/campaign_json.h"
#include "db/schema.h"

namespace lastflop {

EngineFixture::EngineFixture() {
  options_.host_id = "h0";
  options_.is_process_alive = [this](int64_t pid) { return dead_pids_.count(pid) == 0; };
  Restart();
}

void EngineFixture::Restart() {
  engine_.reset();
  database_.reset();
  received_.clear();
  absl::StatusOr<Database> database =
      Database::Open(file_.path(), Database::Mode::kReadWrite, std::chrono::milliseconds(100));
  ASSERT_TRUE(database.ok()) << database.status();
  database_ = std::make_unique<Database>(*std::move(database));
  ASSERT_TRUE(MigrateSchema(*database_).ok());
  absl::StatusOr<std::unique_ptr<Engine>> engine =
      Engine::Create(*database_, clock_, options_, events_);
  ASSERT_TRUE(engine.ok()) << engine.status();
  engine_ = *std::move(engine);
}

WorkerHello EngineFixture::HelloOf(const std::string& worker_id, int64_t pid) const {
  Machine machine;
  machine.backend = "cpu";
  machine.device_name = "some cpu";
  return {.worker_id = worker_id,
          .device = absl::StrCat("cpu:", worker_id.substr(1)),
          .host_id = "h0",
          .host_name = "host",
          .pid = pid,
          .machine_json = ToJson(machine)};
}

SessionId EngineFixture::Connect(const std::string& worker_id, int64_t pid,
                                 const std::vector<std::string>& held) {
  WorkerHello hello = HelloOf(worker_id, pid == 0 ? ++last_pid_ : pid);
  hello.held_attempt_ids = held;
  const absl::Status status = engine_->Hello(++last_session_, hello);
  EXPECT_TRUE(status.ok()) << status;
  return last_session_;
}

SessionId EngineFixture::ConnectOn(const std::string& host_id, const std::string& worker_id) {
  WorkerHello hello = HelloOf(worker_id, ++last_pid_);
  hello.host_id = host_id;
  hello.host_name = host_id;
  const absl::Status status = engine_->Hello(++last_session_, hello);
  EXPECT_TRUE(status.ok()) << status;
  return last_session_;
}

std::string EngineFixture::Submit(const Campaign& campaign) {
  const absl::StatusOr<SubmitAnswer> answer =
      engine_->Submit({.submission_id = absl::StrCat("s", ++num_submitted_), .campaign = campaign});
  EXPECT_TRUE(answer.ok()) << answer.status();
  return answer.ok() ? answer->campaign_id : "";
}

void EngineFixture::Sweep() {
  const absl::Status status = engine_->Sweep({});
  EXPECT_TRUE(status.ok()) << status;
}

template <typename T>
std::vector<T> EngineFixture::Take(SessionId session) {
  for (Outgoing& message : engine_->TakeOutgoing()) {
    received_[message.session].push_back(std::move(message.message));
  }
  std::vector<T> taken;
  std::vector<CoordinatorMessage> others;
  for (CoordinatorMessage& message : received_[session]) {
    if (std::holds_alternative<T>(message)) {
      taken.push_back(std::get<T>(std::move(message)));
    } else {
      others.push_back(std::move(message));
    }
  }
  received_[session] = std::move(others);
  return taken;
}

std::vector<LeaseMessage> EngineFixture::TakeLeases(SessionId session) {
  return Take<LeaseMessage>(session);
}

std::vector<AckMessage> EngineFixture::TakeAcks(SessionId session) {
  return Take<AckMessage>(session);
}

std::vector<CancelMessage> EngineFixture::TakeCancels(SessionId session) {
  return Take<CancelMessage>(session);
}

std::optional<std::string> EngineFixture::TakeRefusal(SessionId session) {
  const std::vector<RefusedMessage> refusals = Take<RefusedMessage>(session);
  return refusals.empty() ? std::nullopt : std::optional(refusals[0].reason);
}

LeaseMessage EngineFixture::NextLease(SessionId session) {
  Sweep();
  std::vector<LeaseMessage> leases = TakeLeases(session);
  EXPECT_EQ(leases.size(), 1u);
  return leases.empty() ? LeaseMessage() : leases[0];
}

AckMessage EngineFixture::Report(SessionId session, const AttemptResult& result) {
  const absl::Status status = engine_->AttemptReport(session, result);
  EXPECT_TRUE(status.ok()) << status;
  const std::vector<AckMessage> acks = TakeAcks(session);
  EXPECT_EQ(acks.size(), 1u);
  return acks.empty() ? AckMessage() : acks[0];
}

int EngineFixture::WorkOff(const std::vector<SessionId>& sessions) {
  int num_attempts = 0;
  for (int before = -1; before != num_attempts;) {
    before = num_attempts;
    Sweep();
    for (const SessionId session : sessions) {
      for (const LeaseMessage& lease : TakeLeases(session)) {
        ++num_attempts;
        EXPECT_TRUE(Report(session, SuccessOf(lease.attempt.attempt_id)).authoritative);
      }
    }
  }
  return num_attempts;
}

CampaignResults EngineFixture::Results(const std::string& campaign_id) {
  absl::StatusOr<CampaignResults> results = ReadCampaign(*database_, campaign_id);
  EXPECT_TRUE(results.ok()) << results.status();
  return results.ok() ? *std::move(results) : CampaignResults();
}

}  // namespace lastflop
