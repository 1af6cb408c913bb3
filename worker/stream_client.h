#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "lastflop/v1/worker.grpc.pb.h"

namespace lastflop {

// How a stream to the coordinator ended.
struct StreamEnd {
  absl::Status handled;  // The handler's error; OK when the stream broke.
  std::string reason;    // gRPC's words.
};

// The worker's end of the streams to the coordinator, one after another. Send() by any thread,
// Serve() by one at a time.
class StreamClient {
 public:
  explicit StreamClient(std::unique_ptr<v1::WorkerService::Stub> stub) : stub_(std::move(stub)) {}

  // One life of a stream: sends `hello` ahead of everything else, then hands what comes to `handle`
  // until that returns an error, the stream breaks or `stop` is set. No Send() uses the stream when
  // it returns.
  StreamEnd Serve(const std::function<v1::WorkerMessage()>& hello,
                  const std::function<absl::Status(const v1::CoordinatorMessage& message)>& handle,
                  const std::atomic<bool>& stop);

  // False when there is no stream, or it is broken.
  bool Send(const v1::WorkerMessage& message);

 private:
  using Stream = grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>;

  void Use(Stream* stream);

  const std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::mutex mutex_;          // Held over a Write(): gRPC takes one at a time.
  Stream* stream_ = nullptr;  // Guarded by mutex_; Serve()'s, nullptr before its hello is sent.
};

}  // namespace lastflop
