#include "coordinator/campaign_service.h"

#include <gmock/gmock.h>

#include "proto/fetch_client.h"
#include "tests/coordinator/service_fixture.h"

namespace lastflop {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

class CampaignServiceTest : public ServiceFixture {
 protected:
  // Stored events after `sequence` until the stream ends.
  std::vector<v1::WatchEvent> Watch(const std::string& id, int64_t sequence, grpc::Status& status) {
    grpc::ClientContext context;
    v1::WatchRequest request;
    request.set_campaign_id(id);
    request.set_after_sequence(sequence);
    const auto reader = campaigns_->Watch(&context, request);
    std::vector<v1::WatchEvent> events;
    v1::WatchEvent event;
    while (reader->Read(&event)) {
      if (event.kind() != "progress") {
        events.push_back(event);
      }
    }
    status = reader->Finish();
    return events;
  }

  void WorkOff(int num_attempts) {
    FakeWorker worker(*channel_, "w0", 1);
    for (int i = 0; i < num_attempts; ++i) {
      worker.Report(SuccessOf(worker.NextLease()->attempt().attempt_id()));
    }
  }
};

TEST_F(CampaignServiceTest, WatchTellsEveryEventAndEndsWithTheCampaign) {
  Start();
  const std::string id = Submit(SomeCampaignOf(1), "s1");
  std::vector<v1::WatchEvent> live;
  grpc::Status status;
  std::thread watcher([&] { live = Watch(id, 0, status); });
  WorkOff(2);
  watcher.join();
  EXPECT_TRUE(status.ok()) << status.error_message();
  ASSERT_FALSE(live.empty());
  EXPECT_EQ(live.back().kind(), "campaign");
  EXPECT_EQ(live.back().state(), "done");
  EXPECT_EQ(live.back().summary().num_done(), 2);

  // Continuing from the middle gives the rest without a gap.
  const std::vector<v1::WatchEvent> rest = Watch(id, live[3].sequence(), status);
  ASSERT_EQ(rest.size(), live.size() - 4);
  EXPECT_EQ(rest[0].sequence(), live[4].sequence());
}

TEST_F(CampaignServiceTest, WatchersHearProgressBetweenEvents) {
  Start();
  const std::string id = Submit(SomeCampaignOf(0), "s1");
  FakeWorker worker(*channel_, "w0", 1);
  const std::string attempt_id = worker.NextLease()->attempt().attempt_id();
  grpc::ClientContext context;
  v1::WatchRequest request;
  request.set_campaign_id(id);
  const auto reader = campaigns_->Watch(&context, request);
  v1::WorkerMessage progress;
  progress.mutable_attempt_progress()->set_attempt_id(attempt_id);
  progress.mutable_attempt_progress()->set_stage("sampling");
  progress.mutable_attempt_progress()->set_pairs(12);
  worker.Send(progress);
  v1::WatchEvent event;
  int64_t last_sequence = 0;
  do {
    ASSERT_TRUE(reader->Read(&event));
    EXPECT_GE(event.sequence(), last_sequence);
    last_sequence = event.sequence();
  } while (event.kind() != "progress");
  EXPECT_EQ(event.message(), "sampling, 12 pairs");
  EXPECT_EQ(event.current(), "baseline at decode b8 c128, launch 1 of 1");
  context.TryCancel();
}

TEST_F(CampaignServiceTest, ShowsAndListsByIdPrefixOrName) {
  Start();
  const std::string id = Submit(SomeCampaignOf(1), "s1");
  WorkOff(2);
  for (const std::string& reference : {id, id.substr(0, 4), std::string("some")}) {
    grpc::ClientContext context;
    v1::ShowRequest request;
    request.set_campaign_id(reference);
    v1::ShowResponse response;
    const grpc::Status status = campaigns_->Show(&context, request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.summary().campaign_id(), id);
    ASSERT_THAT(response.trials(), SizeIs(2));
    EXPECT_EQ(response.trials(1).intervention_id(), "i0");
    EXPECT_NEAR(response.trials(1).speedup(), 100.0 / 90, 1e-9);
  }
  grpc::ClientContext context;
  v1::ListResponse response;
  ASSERT_TRUE(campaigns_->List(&context, {}, &response).ok());
  ASSERT_THAT(response.campaigns(), SizeIs(1));
  EXPECT_EQ(response.campaigns(0).num_done(), 2);
}

TEST_F(CampaignServiceTest, SaysWhatItDoesNotKnowOrCannotRead) {
  Start();
  {
    grpc::ClientContext context;
    v1::ShowRequest request;
    request.set_campaign_id("none");
    v1::ShowResponse response;
    EXPECT_EQ(campaigns_->Show(&context, request, &response).error_code(),
              grpc::StatusCode::NOT_FOUND);
  }
  v1::SubmitRequest request;
  request.set_campaign_json("{\"from_the_future\": 1}");
  v1::SubmitResponse response;
  {
    grpc::ClientContext context;
    EXPECT_EQ(campaigns_->Submit(&context, request, &response).error_code(),
              grpc::StatusCode::INVALID_ARGUMENT)
        << "no submission_id";
  }
  request.set_submission_id("s1");
  {
    grpc::ClientContext context;
    const grpc::Status status = campaigns_->Submit(&context, request, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("from_the_future"));
  }
  Campaign campaign = SomeCampaignOf(1);
  campaign.budget.rounds = 0;
  request.set_campaign_json(ToJson(campaign));
  grpc::ClientContext context;
  const grpc::Status status = campaigns_->Submit(&context, request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("budget.rounds is at least 1"));
}

TEST_F(CampaignServiceTest, CancelsAndResumes) {
  Start();
  const std::string id = Submit(SomeCampaignOf(1), "s1");
  grpc::ClientContext first;
  v1::CancelRequest cancel;
  cancel.set_campaign_id(id);
  v1::CancelResponse cancelled;
  ASSERT_TRUE(campaigns_->Cancel(&first, cancel, &cancelled).ok());
  EXPECT_EQ(cancelled.num_trials_cancelled(), 2);
  grpc::ClientContext second;
  v1::ResumeRequest resume;
  resume.set_campaign_id(id);
  v1::ResumeResponse resumed;
  ASSERT_TRUE(campaigns_->Resume(&second, resume, &resumed).ok());
  EXPECT_EQ(resumed.num_trials_pending(), 2);
}

TEST_F(CampaignServiceTest, ListsWorkersAndTheirLogLines) {
  Start();
  FakeWorker worker(*channel_, "w0", 1);
  ASSERT_TRUE(worker.Next()->has_welcome());
  v1::WorkerMessage log;
  log.mutable_log()->set_at_ms(5);
  log.mutable_log()->set_severity("warning");
  log.mutable_log()->set_line("event=hot");
  worker.Send(log);
  grpc::ClientContext context;
  v1::LogsRequest request;
  request.set_source("w0");
  request.set_follow(true);
  const auto reader = campaigns_->Logs(&context, request);
  v1::LogEntry entry;
  ASSERT_TRUE(reader->Read(&entry));
  EXPECT_EQ(entry.source(), "w0");
  EXPECT_EQ(entry.severity(), "warning");
  EXPECT_EQ(entry.line(), "event=hot");
  context.TryCancel();

  grpc::ClientContext list;
  v1::ListWorkersResponse response;
  ASSERT_TRUE(campaigns_->ListWorkers(&list, {}, &response).ok());
  ASSERT_THAT(response.workers(), SizeIs(1));
  EXPECT_EQ(response.workers(0).state(), "idle");
}

TEST_F(CampaignServiceTest, WhoHasNoTokenIsUnauthenticated) {
  server_options_.token = "secret";
  Start();
  v1::ListResponse response;
  {
    grpc::ClientContext context;
    EXPECT_EQ(campaigns_->List(&context, {}, &response).error_code(),
              grpc::StatusCode::UNAUTHENTICATED);
  }
  {
    grpc::ClientContext context;
    AddToken("secret", context);
    EXPECT_TRUE(campaigns_->List(&context, {}, &response).ok());
  }
  EXPECT_EQ(FetchCampaign(*campaigns_, "c").status().code(), absl::StatusCode::kUnauthenticated);
}

TEST_F(CampaignServiceTest, WatchersAreToldWhenTheDiskIsFull) {
  Start();
  const std::string id = Submit(SomeCampaignOf(0), "s1");
  std::vector<v1::WatchEvent> events;
  grpc::Status status;
  std::thread watcher([&] { events = Watch(id, 0, status); });
  // What a store gives when the disk is full.
  coordinator_->Post([](Engine& /*engine*/) {
    return absl::ResourceExhaustedError("write or read a row: database or disk is full");
  });
  watcher.join();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), HasSubstr("disk is full"));
  EXPECT_TRUE(coordinator_->WaitUntilStopped(std::chrono::hours(1)));
  EXPECT_EQ(coordinator_->status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(coordinator_->Submit({.submission_id = "s2"}).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace lastflop
