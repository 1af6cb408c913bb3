#include "tests/coordinator/service_fixture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/channel_client.h"
#include "proto/codec.h"

namespace lastflop {

FakeWorker::FakeWorker(grpc::Channel& channel, const std::string& worker_id, int64_t pid,
                       const std::string& token, const std::string& host_id)
    // The stub shares the channel, which the fixture keeps for longer than any worker.
    : stub_(v1::WorkerService::NewStub(
          std::shared_ptr<grpc::Channel>(&channel, [](grpc::Channel* /*kept*/) {}))),
      stream_(stub_->Connect(&context_)) {
  Machine machine;
  machine.backend = "cpu";
  machine.device_name = "some cpu";
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_worker_id(worker_id);
  hello.set_device("cpu:0");
  hello.set_host_id(host_id);
  hello.set_host_name("host");
  hello.set_pid(pid);
  hello.set_machine_json(ToJson(machine));
  hello.set_token(token);
  Send(message);
}

FakeWorker::~FakeWorker() {
  context_.TryCancel();
  while (!is_over_) {
    Next();
  }
}

std::optional<v1::CoordinatorMessage> FakeWorker::Next() {
  v1::CoordinatorMessage message;
  if (is_over_ || !stream_->Read(&message)) {
    is_over_ = true;
    return std::nullopt;
  }
  return message;
}

std::optional<v1::Lease> FakeWorker::NextLease() {
  while (std::optional<v1::CoordinatorMessage> message = Next()) {
    if (message->has_lease()) {
      return message->lease();
    }
  }
  return std::nullopt;
}

std::optional<v1::ReportAck> FakeWorker::Report(const AttemptResult& result) {
  v1::WorkerMessage report;
  *report.mutable_attempt_report()->mutable_result() = ToProto(result);
  Send(report);
  while (std::optional<v1::CoordinatorMessage> message = Next()) {
    if (message->has_report_ack()) {
      return message->report_ack();
    }
  }
  return std::nullopt;
}

ServiceFixture::ServiceFixture() {
  options_.host_id = "h0";
  options_.is_process_alive = [](int64_t /*pid*/) { return true; };
  options_.heartbeat = std::chrono::milliseconds(20);
  server_options_.listen = absl::StrCat("unix:", file_.folder(), "/socket");
}

ServiceFixture::~ServiceFixture() { Stop(); }

void ServiceFixture::Start() {
  absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
      Coordinator::Create(file_.path(), clock_, options_);
  ASSERT_TRUE(coordinator.ok()) << coordinator.status();
  coordinator_ = *std::move(coordinator);
  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(server_options_, *coordinator_);
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
      OpenChannel({.server = server_->address()});
  ASSERT_TRUE(channel.ok()) << channel.status();
  channel_ = *std::move(channel);
  campaigns_ = v1::CampaignService::NewStub(channel_);
}

void ServiceFixture::Stop() {
  if (coordinator_ != nullptr) {
    coordinator_->Stop();
  }
  server_.reset();
  coordinator_.reset();
}

std::string ServiceFixture::Submit(const Campaign& campaign, const std::string& submission_id) {
  grpc::ClientContext context;
  v1::SubmitRequest request;
  request.set_submission_id(submission_id);
  request.set_campaign_json(ToJson(campaign));
  request.set_source_yaml("name: some\n");
  request.set_source_name("some.yaml");
  v1::SubmitResponse response;
  const grpc::Status status = campaigns_->Submit(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.campaign_id();
}

}  // namespace lastflop
