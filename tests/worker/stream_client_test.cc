#include "worker/stream_client.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

// Answers a few messages of each stream and breaks it. Counts the streams and those that did not
// begin with a hello.
class BreakingCoordinator : public v1::WorkerService::Service {
 public:
  grpc::Status Connect(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::CoordinatorMessage, v1::WorkerMessage>* stream) override {
    v1::WorkerMessage message;
    const bool has_message = stream->Read(&message);
    ++num_streams;
    num_without_hello += has_message && message.has_hello() ? 0 : 1;
    v1::CoordinatorMessage welcome;
    welcome.mutable_welcome()->set_worker_id("w0");
    stream->Write(welcome);
    for (int i = 0; i < 5; ++i) {
      stream->Read(&message);
    }
    context->TryCancel();
    return grpc::Status::OK;
  }

  std::atomic<int> num_streams{0};
  std::atomic<int> num_without_hello{0};
};

class StreamClientTest : public testing::Test {
 protected:
  StreamClientTest() {
    const std::string address =
        absl::StrCat("unix:", testing::TempDir(), "stream-", getpid(), ".sock");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&coordinator_);
    server_ = builder.BuildAndStart();
    client_ = std::make_unique<StreamClient>(v1::WorkerService::NewStub(
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials())));
  }

  static v1::WorkerMessage Hello() {
    v1::WorkerMessage hello;
    hello.mutable_hello()->set_worker_id("w0");
    return hello;
  }
  static v1::WorkerMessage Progress() {
    v1::WorkerMessage progress;
    progress.mutable_attempt_progress()->set_attempt_id("a1");
    return progress;
  }

  BreakingCoordinator coordinator_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<StreamClient> client_;
  std::atomic<bool> stop_{false};
};

// Progress and heartbeats come from threads that know nothing of streams and their ends. A Send()
// that went on with a stream after its end would be the address sanitizer's to find.
TEST_F(StreamClientTest, BeginsEveryStreamWithAHelloWhileOthersSendAllTheTime) {
  std::atomic<bool> is_over{false};
  std::vector<std::thread> senders;
  for (int i = 0; i < 3; ++i) {
    senders.emplace_back([&] {
      while (!is_over) {
        client_->Send(Progress());
      }
    });
  }
  constexpr int kStreams = 40;
  int num_welcomes = 0;
  for (int i = 0; i < kStreams; ++i) {
    const StreamEnd end = client_->Serve(
        Hello,
        [&](const v1::CoordinatorMessage& message) {
          num_welcomes += message.has_welcome() ? 1 : 0;
          return absl::OkStatus();
        },
        stop_);
    EXPECT_TRUE(end.handled.ok()) << end.handled;
  }
  is_over = true;
  for (std::thread& sender : senders) {
    sender.join();
  }
  EXPECT_EQ(coordinator_.num_streams, kStreams);
  EXPECT_EQ(coordinator_.num_without_hello, 0);
  EXPECT_EQ(num_welcomes, kStreams);
}

TEST_F(StreamClientTest, SendsNothingWhereThereIsNoStream) {
  EXPECT_FALSE(client_->Send(Progress()));
  EXPECT_EQ(coordinator_.num_streams, 0);
}

TEST_F(StreamClientTest, AHandlersErrorEndsTheStreamAndComesBack) {
  const StreamEnd end = client_->Serve(
      Hello,
      [](const v1::CoordinatorMessage& message) {
        return absl::FailedPreconditionError(message.welcome().worker_id());
      },
      stop_);
  EXPECT_EQ(end.handled, absl::FailedPreconditionError("w0"));
  EXPECT_FALSE(client_->Send(Progress()));
}

}  // namespace
}  // namespace lastflop
