#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/campaign_json.h"
#include "coordinator/coordinator.h"
#include "coordinator/server.h"
#include "lastflop/v1/campaign.grpc.pb.h"
#include "lastflop/v1/worker.grpc.pb.h"
#include "tests/coordinator/fake_clock.h"
#include "tests/coordinator/some_run.h"
#include "tests/db/some_campaign.h"

namespace lastflop {

// A worker's side of a stream, driven by the test.
class FakeWorker {
 public:
  FakeWorker(grpc::Channel& channel, const std::string& worker_id, int64_t pid,
             const std::string& token = "", const std::string& host_id = "h0");
  ~FakeWorker();

  void Send(const v1::WorkerMessage& message) { stream_->Write(message); }
  // The next message, blocking; nullopt when the stream ended.
  std::optional<v1::CoordinatorMessage> Next();
  // The next lease, past what else comes.
  std::optional<v1::Lease> NextLease();
  // Sends a report and waits for its acknowledgement.
  std::optional<v1::ReportAck> Report(const AttemptResult& result);
  // As the death of its process.
  void Break() { context_.TryCancel(); }
  grpc::Status Finish() { return stream_->Finish(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> stream_;
  bool is_over_ = false;
};

// A coordinator on a database file, served on a Unix socket, with a clock that stands still.
class ServiceFixture : public testing::Test {
 protected:
  ServiceFixture();
  ~ServiceFixture() override;

  void Start();
  void Stop();
  std::string Submit(const Campaign& campaign, const std::string& submission_id);

  TemporaryFile file_{"x.db"};
  FakeClock clock_;
  CoordinatorOptions options_;
  ServerOptions server_options_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::CampaignService::Stub> campaigns_;
};

}  // namespace lastflop
