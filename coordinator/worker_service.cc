#include "coordinator/worker_service.h"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator_codec.h"
#include "proto/channel_client.h"
#include "proto/codec.h"

namespace lastflop {
namespace {

using Stream = grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>;

// A worker that was told its last message ends its stream; one that does not is cut off.
constexpr std::chrono::seconds kEndGrace{5};

// A report that cannot be read must not be sent again and again: it ends its attempt.
AttemptResult UnreadableReport(const v1::AttemptResult& message, const absl::Status& status) {
  AttemptResult result;
  result.attempt_id = message.attempt_id();
  result.failure =
      Failure{.kind = FailureKind::kInternal,
              .message = absl::StrCat("the report cannot be read: ", status.message())};
  return result;
}

void HandleReport(Coordinator& coordinator, SessionId id, const v1::AttemptReport& report) {
  absl::StatusOr<AttemptResult> result = FromProto(report.result());
  if (!result.ok()) {
    result = UnreadableReport(report.result(), result.status());
  }
  coordinator.Post([id, result = *std::move(result)](Engine& engine) {
    return engine.AttemptReport(id, result);
  });
}

void HandleLog(Coordinator& coordinator, SessionId id, const v1::WorkerLog& log) {
  LogLine line{.at_ms = log.at_ms(), .severity = log.severity(), .line = log.line()};
  coordinator.Post(
      [id, line = std::move(line)](Engine& engine) { return engine.WorkerLogs(id, {line}); });
}

// Hands one message to the engine. What this build does not know is ignored: a newer worker may
// say more.
void Handle(Coordinator& coordinator, SessionId id, const v1::WorkerMessage& message) {
  switch (message.message_case()) {
    case v1::WorkerMessage::kHello:
      coordinator.Post([id, hello = FromProto(message.hello())](Engine& engine) {
        return engine.Hello(id, hello);
      });
      return;
    case v1::WorkerMessage::kHeartbeat:
      coordinator.Post([id, heartbeat = message.heartbeat()](Engine& engine) {
        return engine.Heartbeat(
            id, {heartbeat.attempt_ids().begin(), heartbeat.attempt_ids().end()},
            {heartbeat.held_up_attempt_ids().begin(), heartbeat.held_up_attempt_ids().end()});
      });
      return;
    case v1::WorkerMessage::kAttemptStarted:
      coordinator.Post([id, attempt_id = message.attempt_started().attempt_id()](Engine& engine) {
        return engine.AttemptStarted(id, attempt_id);
      });
      return;
    case v1::WorkerMessage::kAttemptProgress:
      coordinator.Post([id, progress = message.attempt_progress()](Engine& engine) {
        engine.AttemptProgress(id, progress.attempt_id(), progress.stage(), progress.pairs(),
                               progress.speedup());
        return absl::OkStatus();
      });
      return;
    case v1::WorkerMessage::kAttemptReport:
      HandleReport(coordinator, id, message.attempt_report());
      return;
    case v1::WorkerMessage::kLog:
      HandleLog(coordinator, id, message.log());
      return;
    case v1::WorkerMessage::kAttemptRefused:
      coordinator.Post([id, refused = message.attempt_refused()](Engine& engine) {
        return engine.AttemptRefused(id, refused.attempt_id(), refused.reason(),
                                     refused.busy() ? AttemptState::kLost : AttemptState::kRefused);
      });
      return;
    case v1::WorkerMessage::MESSAGE_NOT_SET:
      return;
  }
}

// Whether the reading side has ended, for the side that waits for it.
class ReaderEnd {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    is_set_ = true;
    changed_.notify_all();
  }
  bool WaitFor(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, timeout, [this] { return is_set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_set_ = false;  // Guarded by mutex_.
};

void WriteMessages(grpc::ServerContext& context, Stream& stream, WorkerSession& session,
                   ReaderEnd& reader) {
  while (std::optional<CoordinatorMessage> message = session.Pop()) {
    if (!stream.Write(ToProto(*message))) {
      break;  // The worker has gone; the reader sees it too.
    }
  }
  if (!reader.WaitFor(kEndGrace)) {
    context.TryCancel();
  }
}

}  // namespace

grpc::Status WorkerServiceImpl::Connect(grpc::ServerContext* context, Stream* stream) {
  v1::WorkerMessage message;
  if (!stream->Read(&message) || !message.has_hello()) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "the first message is not a Hello");
  }
  if (!token_.empty() && message.hello().token() != token_) {
    v1::CoordinatorMessage refused;
    refused.mutable_refused()->set_reason("the token is missing or wrong: give --token-file");
    stream->Write(refused);
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, refused.refused().reason());
  }
  const std::shared_ptr<WorkerSession> session =
      coordinator_.OpenSession([context] { context->TryCancel(); });
  ReaderEnd reader;
  std::thread writer([&] { WriteMessages(*context, *stream, *session, reader); });
  do {
    session->Touch(coordinator_.clock().Monotonic());
    Handle(coordinator_, session->id(), message);
  } while (stream->Read(&message));
  reader.Set();
  session->Finish();
  session->Close();
  coordinator_.CloseSession(*session);
  writer.join();
  return grpc::Status::OK;
}

}  // namespace lastflop
