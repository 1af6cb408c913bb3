#include "worker/stream_client.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <thread>

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kStopPoll{50};

}  // namespace

StreamEnd StreamClient::Serve(
    const std::function<v1::WorkerMessage()>& hello,
    const std::function<absl::Status(const v1::CoordinatorMessage& message)>& handle,
    const std::atomic<bool>& stop) {
  grpc::ClientContext context;
  const std::unique_ptr<Stream> stream = stub_->Connect(&context);
  // Reads and writes have no timeout: whoever wants the end cancels the call.
  std::atomic<bool> is_over{false};
  std::thread canceller([&] {
    while (!stop && !is_over) {
      std::this_thread::sleep_for(kStopPoll);
    }
    context.TryCancel();
  });
  absl::Status handled = absl::OkStatus();
  if (stream->Write(hello())) {
    Use(stream.get());
    v1::CoordinatorMessage message;
    while (handled.ok() && stream->Read(&message)) {
      handled = handle(message);
    }
  }
  is_over = true;
  canceller.join();
  // Waits for a Send() that has the stream, which the cancelled call ends. One that went on with it
  // would use `context`, and with it the call, after their end.
  Use(nullptr);
  const grpc::Status ended = stream->Finish();
  return {.handled = handled, .reason = ended.error_message()};
}

bool StreamClient::Send(const v1::WorkerMessage& message) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stream_ != nullptr && stream_->Write(message);
}

void StreamClient::Use(Stream* stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  stream_ = stream;
}

}  // namespace lastflop
