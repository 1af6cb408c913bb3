#include "coordinator/server.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/channel_client.h"
#include "tests/coordinator/service_fixture.h"

namespace lastflop {
namespace {

using testing::HasSubstr;

class ServerTest : public ServiceFixture {
 protected:
  absl::Status TryListen(const ServerOptions& options) {
    return Server::Start(options, *coordinator_).status();
  }

  bool CanList(const std::string& address) {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel = OpenChannel({.server = address});
    EXPECT_TRUE(channel.ok()) << channel.status();
    grpc::ClientContext context;
    v1::ListResponse response;
    return v1::CampaignService::NewStub(*channel)->List(&context, {}, &response).ok();
  }
};

TEST_F(ServerTest, PicksAFreePortAndSaysWhich) {
  server_options_.listen = "127.0.0.1:0";
  Start();
  EXPECT_THAT(server_->address(), testing::StartsWith("127.0.0.1:"));
  EXPECT_NE(server_->address(), "127.0.0.1:0");
  EXPECT_TRUE(CanList(server_->address()));
}

TEST_F(ServerTest, TwoDoNotShareAPortOrASocket) {
  server_options_.listen = "127.0.0.1:0";
  Start();
  const absl::Status port = TryListen({.listen = server_->address()});
  EXPECT_EQ(port.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(port.message()), HasSubstr(server_->address()));

  const std::string socket = absl::StrCat("unix:", file_.folder(), "/s");
  absl::StatusOr<std::unique_ptr<Server>> first = Server::Start({.listen = socket}, *coordinator_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(TryListen({.listen = socket}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(CanList(socket)) << "the first one is still there";
}

TEST_F(ServerTest, TwoDoNotShareADatabase) {
  Start();
  const absl::Status status = Coordinator::Create(file_.path(), clock_, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another coordinator"));
}

TEST_F(ServerTest, StopsWhenItsDatabaseIsTakenAway) {
  Start();
  std::filesystem::rename(file_.path(), file_.path() + ".moved");
  ASSERT_TRUE(coordinator_->WaitUntilStopped(std::chrono::seconds(30)));
  EXPECT_EQ(coordinator_->status().code(), absl::StatusCode::kDataLoss) << coordinator_->status();
}

TEST_F(ServerTest, TakesNoFileThatIsNoDatabaseAndMakesNoneBesideIt) {
  std::ofstream(file_.path()) << "name: a campaign\n";
  const absl::Status status = Coordinator::Create(file_.path(), clock_, options_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_FALSE(std::filesystem::exists(file_.path() + ".lock"));
}

TEST_F(ServerTest, AnAddressOnTheNetworkNeedsTlsAndAToken) {
  Start();
  for (const char* listen : {"0.0.0.0:0", "[::]:0", "192.0.2.1:7000"}) {
    const absl::Status status = TryListen({.listen = listen});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << listen;
    EXPECT_THAT(std::string(status.message()), HasSubstr("--token-file"));
  }
  EXPECT_THAT(std::string(TryListen({.listen = "0.0.0.0:0",
                                     .tls_cert_file = "/nonexistent",
                                     .tls_key_file = "/nonexistent",
                                     .token = "t"})
                              .message()),
              HasSubstr("cannot read /nonexistent"));
}

TEST_F(ServerTest, RefusesWhatIsNoAddress) {
  Start();
  for (const char* listen : {"", "7000", ":7000", "localhost:99999", "unix:"}) {
    EXPECT_EQ(TryListen({.listen = listen}).code(), absl::StatusCode::kInvalidArgument) << listen;
  }
}

TEST_F(ServerTest, AProxyForTheNetworkIsNotAskedForLoopback) {
  server_options_.listen = "127.0.0.1:0";
  setenv("http_proxy", "http://192.0.2.1:3128", 1);
  setenv("grpc_proxy", "http://192.0.2.1:3128", 1);
  Start();
  EXPECT_TRUE(CanList(server_->address()));
  unsetenv("http_proxy");
  unsetenv("grpc_proxy");
}

TEST_F(ServerTest, AnswersHealthChecks) {
  Start();
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice nothing("", 0);  // The server as a whole.
  const auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check",
                                          grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, &response);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(ServerTest, DescribesItselfByReflection) {
  Start();
  // list_services, as text on the wire: field 7, a string.
  const grpc::Slice question("\x3a\x01*", 3);
  grpc::GenericStub stub(channel_);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(
      &context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  ASSERT_TRUE(wait());
  call->Write(grpc::ByteBuffer(&question, 1), nullptr);
  ASSERT_TRUE(wait());
  grpc::ByteBuffer answer;
  call->Read(&answer, nullptr);
  ASSERT_TRUE(wait());
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(answer.Dump(&slices).ok());
  std::string text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  EXPECT_THAT(text, HasSubstr("lastflop.v1.CampaignService"));
  EXPECT_THAT(text, HasSubstr("lastflop.v1.WorkerService"));
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  wait();
}

TEST_F(ServerTest, ClientsKnowWhatIsLoopback) {
  for (const char* address :
       {"unix:/tmp/x", "127.0.0.1:1", "127.1.2.3:1", "localhost:1", "[::1]:1"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"10.0.0.1:1", "example.org:1", "[2001:db8::1]:1", "127.0.0.1"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
  EXPECT_EQ(OpenChannel({.server = "10.0.0.1:1"}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(OpenChannel({.server = "nonsense"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
