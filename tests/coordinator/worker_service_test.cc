#include "coordinator/worker_service.h"

#include <gmock/gmock.h>

#include "proto/codec.h"
#include "proto/fetch_client.h"
#include "tests/coordinator/service_fixture.h"

namespace lastflop {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class WorkerServiceTest : public ServiceFixture {
 protected:
  CampaignResults Fetch(const std::string& campaign_id) {
    absl::StatusOr<CampaignResults> results = FetchCampaign(*campaigns_, campaign_id);
    EXPECT_TRUE(results.ok()) << results.status();
    return results.ok() ? *std::move(results) : CampaignResults();
  }
};

TEST_F(WorkerServiceTest, AWorkerIsWelcomedLeasedAndAcknowledged) {
  Start();
  const std::string id = Submit(SomeCampaignOf(1), "s1");
  FakeWorker worker(*channel_, "w0", 1);
  const std::optional<v1::CoordinatorMessage> welcome = worker.Next();
  ASSERT_TRUE(welcome.has_value() && welcome->has_welcome());
  EXPECT_EQ(welcome->welcome().worker_id(), "w0");
  EXPECT_EQ(welcome->welcome().heartbeat_ms(), options_.heartbeat.count());
  for (int i = 0; i < 2; ++i) {
    const std::optional<v1::Lease> lease = worker.NextLease();
    ASSERT_TRUE(lease.has_value());
    const absl::StatusOr<AttemptSpec> attempt = FromProto(lease->attempt());
    ASSERT_TRUE(attempt.ok()) << attempt.status();
    const absl::StatusOr<Campaign> campaign = CampaignFromJson(lease->launch().campaign_json());
    ASSERT_TRUE(campaign.ok()) << campaign.status();
    EXPECT_EQ(campaign->machine.device_name, "some cpu");
    const std::optional<v1::ReportAck> ack = worker.Report(SuccessOf(attempt->attempt_id));
    ASSERT_TRUE(ack.has_value());
    EXPECT_TRUE(ack->authoritative());
  }
  const CampaignResults results = Fetch(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  EXPECT_THAT(results.attempts, SizeIs(2));
}

TEST_F(WorkerServiceTest, ASecondLiveWorkerWithOneIdIsToldWhyAndItsStreamEnds) {
  Start();
  FakeWorker first(*channel_, "w0", 1);
  ASSERT_TRUE(first.Next()->has_welcome());
  FakeWorker second(*channel_, "w0", 2);
  const std::optional<v1::CoordinatorMessage> refused = second.Next();
  ASSERT_TRUE(refused.has_value() && refused->has_refused());
  EXPECT_THAT(refused->refused().reason(), HasSubstr("process 1 on host"));
}

TEST_F(WorkerServiceTest, AReportThatCannotBeReadEndsItsAttemptOnce) {
  Start();
  const std::string id = Submit(SomeCampaignOf(0), "s1");
  FakeWorker worker(*channel_, "w0", 1);
  const std::string attempt_id = worker.NextLease()->attempt().attempt_id();
  v1::WorkerMessage report;
  report.mutable_attempt_report()->mutable_result()->set_attempt_id(attempt_id);
  report.mutable_attempt_report()->mutable_result()->set_fidelity("from the future");
  worker.Send(report);
  ASSERT_TRUE(worker.NextLease().has_value()) << "it may be tried again";
  const CampaignResults results = Fetch(id);
  EXPECT_EQ(results.attempts[0].state, AttemptState::kFailed);
  EXPECT_THAT(results.attempts[0].outcome, HasSubstr("the report cannot be read"));
}

TEST_F(WorkerServiceTest, WhoHasNoTokenIsRefused) {
  server_options_.token = "secret";
  Start();
  FakeWorker stranger(*channel_, "w0", 1);
  EXPECT_THAT(stranger.Next()->refused().reason(), HasSubstr("token"));
  FakeWorker friendly(*channel_, "w0", 1, "secret");
  EXPECT_TRUE(friendly.Next()->has_welcome());
}

TEST_F(WorkerServiceTest, TheFirstMessageIsAHello) {
  Start();
  grpc::ClientContext context;
  const auto stub = v1::WorkerService::NewStub(channel_);
  const auto stream = stub->Connect(&context);
  v1::WorkerMessage message;
  message.mutable_heartbeat();
  stream->Write(message);
  v1::CoordinatorMessage answer;
  EXPECT_FALSE(stream->Read(&answer));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(WorkerServiceTest, AResultLargerThanGrpcsUsualLimitArrivesAndIsFetchedInPieces) {
  Start();
  const std::string id = Submit(SomeCampaignOf(0), "s1");
  FakeWorker worker(*channel_, "w0", 1);
  AttemptResult result = SuccessOf(worker.NextLease()->attempt().attempt_id());
  result.samples.resize(200000, result.samples[0]);
  ASSERT_GT(ToProto(result).ByteSizeLong(), 4u << 20);
  ASSERT_TRUE(worker.Report(result)->authoritative());
  EXPECT_THAT(Fetch(id).attempts[0].result.samples, SizeIs(200000));
}

TEST_F(WorkerServiceTest, EightReportsUnderAForeignWriteLockAreAllStoredOnce) {
  Start();
  const std::string id = Submit(SomeCampaignOf(7), "s1");
  FakeWorker worker(*channel_, "w0", 1);
  for (int i = 0; i < 8; ++i) {
    const std::string attempt_id = worker.NextLease()->attempt().attempt_id();
    absl::StatusOr<Database> foreign = Database::Open(file_.path(), Database::Mode::kReadWrite);
    ASSERT_TRUE(foreign.ok()) << foreign.status();
    ASSERT_TRUE(foreign->ExecuteScript("BEGIN IMMEDIATE").ok());
    v1::WorkerMessage report;
    *report.mutable_attempt_report()->mutable_result() = ToProto(SuccessOf(attempt_id));
    worker.Send(report);
    worker.Send(report);  // Impatient.
    // A poll is answered while the writer waits.
    grpc::ClientContext context;
    v1::ShowRequest request;
    request.set_campaign_id(id);
    v1::ShowResponse response;
    EXPECT_TRUE(campaigns_->Show(&context, request, &response).ok());
    ASSERT_TRUE(foreign->ExecuteScript("COMMIT").ok());
    for (int acks = 0; acks < 2;) {
      const std::optional<v1::CoordinatorMessage> message = worker.Next();
      ASSERT_TRUE(message.has_value());
      if (message->has_report_ack()) {
        EXPECT_TRUE(message->report_ack().authoritative());
        ++acks;
      }
      if (message->has_lease()) {
        // The next turn's; give it back to the loop by reporting it at once.
        ASSERT_LT(i, 7);
        EXPECT_TRUE(worker.Report(SuccessOf(message->lease().attempt().attempt_id())).has_value());
        ++i;
      }
    }
  }
  const CampaignResults results = Fetch(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  EXPECT_THAT(results.attempts, SizeIs(8));
}

TEST_F(WorkerServiceTest, EightResultsThatArriveWhileAForeignProcessHoldsTheLockAreStoredOnce) {
  Start();
  const std::string id = Submit(SomeCampaignOf(7), "s1");
  std::vector<std::unique_ptr<FakeWorker>> workers;
  std::vector<std::string> attempts;
  for (int i = 0; i < 8; ++i) {
    workers.push_back(std::make_unique<FakeWorker>(*channel_, absl::StrCat("w", i), i + 1, "",
                                                   absl::StrCat("host", i)));
    attempts.push_back(workers.back()->NextLease()->attempt().attempt_id());
  }
  absl::StatusOr<Database> foreign = Database::Open(file_.path(), Database::Mode::kReadWrite);
  ASSERT_TRUE(foreign.ok()) << foreign.status();
  ASSERT_TRUE(foreign->ExecuteScript("BEGIN IMMEDIATE").ok());
  for (int i = 0; i < 8; ++i) {
    v1::WorkerMessage report;
    *report.mutable_attempt_report()->mutable_result() = ToProto(SuccessOf(attempts[i]));
    workers[i]->Send(report);
    grpc::ClientContext context;
    v1::ShowRequest request;
    request.set_campaign_id(id);
    v1::ShowResponse response;
    EXPECT_TRUE(campaigns_->Show(&context, request, &response).ok()) << "a poll is answered";
    EXPECT_EQ(response.summary().num_done(), 0) << "nothing is done before it is stored";
  }
  ASSERT_TRUE(foreign->ExecuteScript("COMMIT").ok());
  for (const auto& worker : workers) {
    std::optional<v1::CoordinatorMessage> message = worker->Next();
    while (message.has_value() && !message->has_report_ack()) {
      message = worker->Next();
    }
    ASSERT_TRUE(message.has_value());
    EXPECT_TRUE(message->report_ack().authoritative());
  }
  const CampaignResults results = Fetch(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  EXPECT_THAT(results.attempts, SizeIs(8));
}

TEST_F(WorkerServiceTest, WorkersAreToldToEnd) {
  Start();
  FakeWorker worker(*channel_, "w0", 1);
  ASSERT_TRUE(worker.Next()->has_welcome());
  coordinator_->ShutDownWorkers("over");
  const std::optional<v1::CoordinatorMessage> message = worker.Next();
  ASSERT_TRUE(message.has_value());
  EXPECT_EQ(message->shutdown().reason(), "over");
}

}  // namespace
}  // namespace lastflop
