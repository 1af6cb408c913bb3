#include "worker/worker_client.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/campaign_json.h"
#include "common/host.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "lastflop/v1/worker.grpc.pb.h"
#include "proto/codec.h"
#include "worker/host.h"
#include "worker/host_devices.h"
#include "worker/lease_runner.h"
#include "worker/outage.h"
#include "worker/stream_client.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kLeastBackoff{50};
constexpr std::chrono::milliseconds kMostBackoff{2000};
constexpr std::chrono::milliseconds kPoll{50};
constexpr std::chrono::milliseconds kDefaultHeartbeat{1000};
// A leader that lost a rank waits so long with its report: the member whose child died knows why.
constexpr std::chrono::milliseconds kCauseGrace{300};

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// The stream to the coordinator and the reports that nobody has acknowledged yet.
class Agent {
 public:
  Agent(const WorkerOptions& options, Machine machine,
        std::unique_ptr<v1::WorkerService::Stub> stub)
      : options_(options),
        machine_(std::move(machine)),
        stream_(std::move(stub)),
        worker_id_(options.id),
        runner_(
            options.device, options.plugins,
            LeaseEvents{
                .started = [this](const std::string& id) { Started(id); },
                .progress = [this](const std::string& id, const std::string& stage, int64_t pairs,
                                   double speedup) { Progress(id, stage, pairs, speedup); },
                .said =
                    [this](const std::string& id, const std::string& event,
                           const std::string& text) {
                      Say(LogSeverity::kWarning, event, id, text);
                    },
                .busy = [this](const std::string& id,
                               const std::string& reason) { Refuse(id, reason, /*busy=*/true); },
                .finished = [this](const LeasedWork& work,
                                   const AttemptResult& result) { Finished(work, result); }}),
        heartbeat_([this] { HeartbeatLoop(); }) {}

  ~Agent() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_ending_ = true;
    }
    ended_.notify_all();
    heartbeat_.join();
  }

  // One life of a stream. OK when it broke and may be tried again.
  absl::Status ServeStream(const std::atomic<bool>& stop) {
    was_welcome_ = false;
    const StreamEnd end = stream_.Serve(
        [this] { return MakeHello(); },
        [this](const v1::CoordinatorMessage& message) { return Handle(message); }, stop);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      is_welcome_ = false;
    }
    if (end.handled.ok() && !stop && !is_shutdown_) {
      LogEnd(end.reason);
    }
    return end.handled;
  }

  bool is_shutdown() const { return is_shutdown_; }
  bool was_welcome() const { return was_welcome_; }

 private:
  // Why a stream ended that nobody wanted to end. Connecting goes on for as long as it takes, so
  // that only some of its failures are said.
  void LogEnd(const std::string& reason) {
    if (was_welcome_) {
      outage_.End();
      Log(LogSeverity::kWarning, "stream_lost", {{"worker_id", worker_id_}, {"reason", reason}});
    } else if (outage_.ShouldSay(reason, Outage::Clock::now())) {
      Log(LogSeverity::kWarning, "no_coordinator",
          {{"address", options_.channel.server}, {"reason", reason}});
    }
  }

  v1::WorkerMessage MakeHello() {
    v1::WorkerMessage message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_worker_id(worker_id_);
    hello.set_device(options_.device);
    hello.set_device_uuid(absl::StrCat(HostId(), "/", options_.device));
    hello.set_host_id(HostId());
    hello.set_host_name(HostName());
    hello.set_pid(getpid());
    hello.set_build_hash(BuildHash());
    hello.set_machine_json(ToJson(machine_));
    hello.set_allows_commands(options_.allows_commands);
    for (const auto& [name, file] : options_.plugins.files) {
      hello.add_plugins(name);
    }
    hello.set_token(options_.token);
    for (const std::string& id : HeldIds()) {
      hello.add_held_attempt_ids(id);
    }
    return message;
  }

  // Attempts at work and attempts whose reports are not acknowledged.
  std::vector<std::string> HeldIds() {
    std::vector<std::string> ids = runner_.attempt_ids();
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [id, report] : unacknowledged_) {
      ids.push_back(id);
    }
    return ids;
  }

  // What matters and does not arrive is sent again on the next stream.
  void Send(const v1::WorkerMessage& message) { stream_.Send(message); }

  absl::Status Handle(const v1::CoordinatorMessage& message) {
    switch (message.message_case()) {
      case v1::CoordinatorMessage::kWelcome:
        Welcome(message.welcome());
        return absl::OkStatus();
      case v1::CoordinatorMessage::kRefused:
        return absl::FailedPreconditionError(
            absl::StrCat("the coordinator refused this worker: ", message.refused().reason()));
      case v1::CoordinatorMessage::kLease:
        TakeLease(message.lease());
        return absl::OkStatus();
      case v1::CoordinatorMessage::kCancelAttempt:
        runner_.Cancel(message.cancel_attempt().attempt_id(), message.cancel_attempt().reason());
        return absl::OkStatus();
      case v1::CoordinatorMessage::kReportAck:
        Acknowledged(message.report_ack());
        return absl::OkStatus();
      case v1::CoordinatorMessage::kShutdown:
        is_shutdown_ = true;
        return absl::CancelledError(message.shutdown().reason());
      case v1::CoordinatorMessage::MESSAGE_NOT_SET:
        break;
    }
    // A newer coordinator may say more than this build knows.
    return absl::OkStatus();
  }

  void Welcome(const v1::Welcome& welcome) {
    std::map<std::string, v1::WorkerMessage> reports;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      worker_id_ = welcome.worker_id();
      heartbeat_every_ = std::chrono::milliseconds(welcome.heartbeat_ms());
      is_welcome_ = true;
      was_welcome_ = true;
      reports = unacknowledged_;
    }
    ended_.notify_all();
    Log(LogSeverity::kInfo, "welcome", {{"worker_id", welcome.worker_id()}});
    for (const auto& [id, report] : reports) {
      Send(report);
    }
  }

  void TakeLease(const v1::Lease& lease) {
    absl::StatusOr<LaunchSpec> launch = FromProto(lease.launch());
    absl::StatusOr<AttemptSpec> attempt = FromProto(lease.attempt());
    absl::StatusOr<GangPlace> place = FromProto(lease.place());
    for (const absl::Status& status : {launch.status(), attempt.status(), place.status()}) {
      if (!status.ok()) {
        Refuse(lease.attempt().attempt_id(), std::string(status.message()), /*busy=*/false);
        return;
      }
    }
    runner_.Add(LeasedWork{*std::move(launch), *std::move(attempt), *std::move(place)});
  }

  // Nothing ran: the plan that arrived is not the plan that was meant, or others measure (`busy`).
  // A lost message is made up for by the next hello, which does not name the attempt.
  void Refuse(const std::string& attempt_id, const std::string& why, bool busy) {
    v1::WorkerMessage message;
    message.mutable_attempt_refused()->set_attempt_id(attempt_id);
    message.mutable_attempt_refused()->set_reason(why);
    message.mutable_attempt_refused()->set_busy(busy);
    Send(message);
    Say(LogSeverity::kError, busy ? "device_busy" : "attempt_refused", attempt_id, why);
  }

  void Started(const std::string& attempt_id) {
    v1::WorkerMessage message;
    message.mutable_attempt_started()->set_attempt_id(attempt_id);
    Send(message);
  }

  void Progress(const std::string& attempt_id, const std::string& stage, int64_t pairs,
                double speedup) {
    v1::WorkerMessage message;
    v1::AttemptProgress& progress = *message.mutable_attempt_progress();
    progress.set_attempt_id(attempt_id);
    progress.set_stage(stage);
    progress.set_pairs(pairs);
    progress.set_speedup(speedup);
    Send(message);
  }

  void Finished(const LeasedWork& work, const AttemptResult& result) {
    if (result.failure.has_value()) {
      Say(LogSeverity::kWarning, "attempt_failed", result.attempt_id, result.failure->message);
    }
    if (work.place.rank == 0 && result.failure.has_value() &&
        result.failure->kind == FailureKind::kRankLost) {
      std::this_thread::sleep_for(kCauseGrace);
    }
    v1::WorkerMessage message;
    *message.mutable_attempt_report()->mutable_result() = ToProto(result);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      unacknowledged_[result.attempt_id] = message;
      if (!is_welcome_) {
        return;  // Welcome() sends it.
      }
    }
    Send(message);
  }

  void Acknowledged(const v1::ReportAck& ack) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      unacknowledged_.erase(ack.attempt_id());
    }
    if (!ack.authoritative()) {
      Say(LogSeverity::kWarning, "report_not_authoritative", ack.attempt_id(), ack.message());
    }
  }

  // To this process' log and, for `lastflop logs`, to the coordinator.
  void Say(LogSeverity severity, absl::string_view event, const std::string& attempt_id,
           const std::string& text) {
    Log(severity, event, {{"attempt_id", attempt_id}, {"message", text}});
    v1::WorkerMessage message;
    v1::WorkerLog& log = *message.mutable_log();
    log.set_at_ms(NowMs());
    log.set_severity(severity == LogSeverity::kError ? "error" : "warning");
    log.set_line(absl::StrCat("event=", event, " attempt_id=", attempt_id, " message=", text));
    Send(message);
  }

  void HeartbeatLoop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!is_ending_) {
      const bool is_welcome = is_welcome_;
      const std::chrono::milliseconds every = heartbeat_every_;
      lock.unlock();
      if (is_welcome) {
        v1::WorkerMessage message;
        message.mutable_heartbeat();
        for (const std::string& id : HeldIds()) {
          message.mutable_heartbeat()->add_attempt_ids(id);
        }
        if (const std::string id = runner_.held_up_attempt_id(); !id.empty()) {
          message.mutable_heartbeat()->add_held_up_attempt_ids(id);
        }
        Send(message);
      }
      lock.lock();
      ended_.wait_for(lock, every, [this] { return is_ending_; });
    }
  }

  const WorkerOptions& options_;  // Outlives this.
  const Machine machine_;         // Of this worker's device.
  StreamClient stream_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::string worker_id_;                                          // Guarded by mutex_.
  std::map<std::string, v1::WorkerMessage> unacknowledged_;        // Guarded by mutex_.
  std::chrono::milliseconds heartbeat_every_ = kDefaultHeartbeat;  // Guarded by mutex_.
  bool is_welcome_ = false;                                        // Guarded by mutex_.
  bool is_ending_ = false;                                         // Guarded by mutex_.
  std::atomic<bool> was_welcome_{false};
  Outage outage_;  // ServeStream()'s.
  std::atomic<bool> is_shutdown_{false};
  LeaseRunner runner_;  // After what its events use.
  std::thread heartbeat_;
};

}  // namespace

absl::Status RunWorker(const WorkerOptions& options, const std::atomic<bool>& stop) {
  LASTFLOP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(options.channel));
  LASTFLOP_ASSIGN_OR_RETURN(Machine machine, MachineOfDevice(options.device));
  Agent agent(options, std::move(machine), v1::WorkerService::NewStub(channel));
  std::chrono::milliseconds backoff = kLeastBackoff;
  while (!stop) {
    const absl::Status status = agent.ServeStream(stop);
    if (agent.is_shutdown()) {
      return absl::OkStatus();
    }
    LASTFLOP_RETURN_IF_ERROR(status);
    backoff = agent.was_welcome() ? kLeastBackoff : std::min(backoff * 2, kMostBackoff);
    for (auto slept = std::chrono::milliseconds(0); slept < backoff && !stop; slept += kPoll) {
      std::this_thread::sleep_for(kPoll);
    }
  }
  return absl::OkStatus();
}

}  // namespace lastflop
