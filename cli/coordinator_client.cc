#include "cli/coordinator_client.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/read_file.h"
#include "common/campaign_json.h"
#include "common/status_macros.h"
#include "lastflop/v1/campaign.grpc.pb.h"
#include "proto/channel_client.h"
#include "proto/fetch_client.h"

namespace lastflop {
namespace {

constexpr std::chrono::seconds kCallTimeout{60};
constexpr std::chrono::milliseconds kPoll{50};

CampaignSummary ToLine(const v1::CampaignSummary& summary) {
  return {.campaign_id = summary.campaign_id(),
          .name = summary.name(),
          .state = FromWord<CampaignState>(summary.state()).value_or(CampaignState::kRunning),
          .created_at_ms = summary.created_at_ms(),
          .num_trials = summary.num_trials(),
          .num_done = summary.num_done(),
          .num_unmeasured = summary.num_unmeasured(),
          .num_failed = summary.num_failed(),
          .num_running = summary.num_running(),
          .num_pending = summary.num_pending(),
          .num_cancelled = summary.num_cancelled(),
          .num_lost_out = summary.num_lost_out()};
}

TrialLine ToLine(const v1::TrialStatus& trial) {
  return {.trial_id = trial.trial_id(),
          .intervention_id = trial.intervention_id(),
          .choice = trial.choice(),
          .point = trial.point(),
          .state = trial.state(),
          .reason = trial.reason(),
          .num_attempts = trial.num_attempts(),
          .speedup = trial.speedup()};
}

Event ToEvent(const v1::WatchEvent& event) {
  return {.sequence = event.sequence(),
          .at_ms = event.at_ms(),
          .kind = event.kind(),
          .trial_id = event.trial_id(),
          .intervention_id = event.intervention_id(),
          .state = event.state(),
          .message = event.message(),
          .summary = ToLine(event.summary()),
          .current = event.current(),
          .best = event.best(),
          .seconds_left = event.seconds_left()};
}

WorkerLine ToLine(const v1::WorkerStatus& worker) {
  return {.id = worker.worker_id(),
          .device = worker.device(),
          .host = worker.host_name(),
          .state = worker.state(),
          .current = worker.current(),
          .last_seen_ms = worker.last_seen_ms(),
          .num_done = worker.num_done(),
          .num_failed = worker.num_failed(),
          .reason = worker.reason(),
          .build = worker.build_hash()};
}

// Cancels a streaming call when `stop` is set: reads of a stream have no timeout.
class StopWatcher {
 public:
  StopWatcher(const std::atomic<bool>& stop, grpc::ClientContext& context)
      : thread_([this, &stop, &context] {
          while (!is_over_) {
            if (stop) {
              context.TryCancel();
              return;
            }
            std::this_thread::sleep_for(kPoll);
          }
        }) {}
  ~StopWatcher() {
    is_over_ = true;
    thread_.join();
  }
  StopWatcher(const StopWatcher&) = delete;
  StopWatcher& operator=(const StopWatcher&) = delete;

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

class GrpcCoordinatorClient : public CoordinatorClient {
 public:
  GrpcCoordinatorClient(std::shared_ptr<grpc::Channel> channel, std::string server,
                        std::string token)
      : channel_(std::move(channel)),
        server_(std::move(server)),
        token_(std::move(token)),
        stub_(v1::CampaignService::NewStub(channel_)) {}

  absl::Status WaitUntilUp(std::chrono::milliseconds timeout) override {
    if (channel_->WaitForConnected(std::chrono::system_clock::now() + timeout)) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat("no coordinator answers at ", server_));
  }

  absl::StatusOr<Submission> Submit(const Campaign& campaign, const std::string& source_yaml,
                                    const std::string& source_name,
                                    const std::string& submission_id) override {
    v1::SubmitRequest request;
    request.set_submission_id(submission_id);
    request.set_campaign_json(ToJson(campaign));
    request.set_source_yaml(source_yaml);
    request.set_source_name(source_name);
    v1::SubmitResponse response;
    grpc::ClientContext context;
    LASTFLOP_RETURN_IF_ERROR(
        Called(stub_->Submit(Prepared(context), request, &response), "submitting the campaign"));
    return Submission{.campaign_id = response.campaign_id(),
                      .num_trials = response.num_trials(),
                      .warnings = {response.warnings().begin(), response.warnings().end()}};
  }

  absl::StatusOr<std::vector<CampaignSummary>> List() override {
    v1::ListResponse response;
    grpc::ClientContext context;
    LASTFLOP_RETURN_IF_ERROR(
        Called(stub_->List(Prepared(context), v1::ListRequest(), &response), "listing campaigns"));
    std::vector<CampaignSummary> lines;
    for (const v1::CampaignSummary& summary : response.campaigns()) {
      lines.push_back(ToLine(summary));
    }
    return lines;
  }

  absl::StatusOr<ShownCampaign> Show(const std::string& id) override {
    v1::ShowRequest request;
    request.set_campaign_id(id);
    v1::ShowResponse response;
    grpc::ClientContext context;
    LASTFLOP_RETURN_IF_ERROR(
        Called(stub_->Show(Prepared(context), request, &response), "showing the campaign"));
    ShownCampaign shown;
    shown.summary = ToLine(response.summary());
    for (const v1::TrialStatus& trial : response.trials()) {
      shown.trials.push_back(ToLine(trial));
    }
    return shown;
  }

  absl::Status Watch(const std::string& id, int64_t after_sequence, const std::atomic<bool>& stop,
                     const std::function<bool(const Event&)>& on_event) override {
    v1::WatchRequest request;
    request.set_campaign_id(id);
    request.set_after_sequence(after_sequence);
    grpc::ClientContext context;
    AddToken(token_, context);
    const StopWatcher watcher(stop, context);
    std::unique_ptr<grpc::ClientReader<v1::WatchEvent>> reader = stub_->Watch(&context, request);
    v1::WatchEvent event;
    bool is_wanted = true;
    while (is_wanted && reader->Read(&event)) {
      is_wanted = on_event(ToEvent(event));
    }
    if (!is_wanted) {
      context.TryCancel();
    }
    const grpc::Status status = reader->Finish();
    if (!is_wanted || stop) {
      return absl::OkStatus();
    }
    return Called(status, "watching the campaign");
  }

  absl::StatusOr<int> Cancel(const std::string& id) override {
    v1::CancelRequest request;
    request.set_campaign_id(id);
    v1::CancelResponse response;
    grpc::ClientContext context;
    LASTFLOP_RETURN_IF_ERROR(
        Called(stub_->Cancel(Prepared(context), request, &response), "cancelling the campaign"));
    return response.num_trials_cancelled();
  }

  absl::StatusOr<int> Resume(const std::string& id) override {
    v1::ResumeRequest request;
    request.set_campaign_id(id);
    v1::ResumeResponse response;
    grpc::ClientContext context;
    LASTFLOP_RETURN_IF_ERROR(
        Called(stub_->Resume(Prepared(context), request, &response), "resuming the campaign"));
    return response.num_trials_pending();
  }

  absl::StatusOr<CampaignResults> Fetch(const std::string& id) override {
    return FetchCampaign(*stub_, id, token_);
  }

  absl::StatusOr<std::vector<WorkerLine>> Workers() override {
    v1::ListWorkersResponse response;
    grpc::ClientContext context;
    LASTFLOP_RETURN_IF_ERROR(
        Called(stub_->ListWorkers(Prepared(context), v1::ListWorkersRequest(), &response),
               "listing workers"));
    std::vector<WorkerLine> lines;
    for (const v1::WorkerStatus& worker : response.workers()) {
      lines.push_back(ToLine(worker));
    }
    return lines;
  }

  absl::Status Logs(const std::string& source, bool follow, const std::atomic<bool>& stop,
                    const std::function<void(const LogLine&)>& on_line) override {
    v1::LogsRequest request;
    request.set_source(source);
    request.set_follow(follow);
    grpc::ClientContext context;
    AddToken(token_, context);
    const StopWatcher watcher(stop, context);
    std::unique_ptr<grpc::ClientReader<v1::LogEntry>> reader = stub_->Logs(&context, request);
    v1::LogEntry entry;
    while (reader->Read(&entry)) {
      on_line({.at_ms = entry.at_ms(),
               .source = entry.source(),
               .severity = entry.severity(),
               .line = entry.line()});
    }
    const grpc::Status status = reader->Finish();
    return stop ? absl::OkStatus() : Called(status, "reading logs");
  }

 private:
  grpc::ClientContext* Prepared(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    AddToken(token_, context);
    return &context;
  }

  absl::Status Called(const grpc::Status& status, absl::string_view doing) {
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      return absl::UnavailableError(absl::StrCat(doing, ": no coordinator answers at ", server_,
                                                 ": ", status.error_message()));
    }
    return FromGrpcStatus(status, doing);
  }

  std::shared_ptr<grpc::Channel> channel_;
  const std::string server_;
  const std::string token_;
  std::unique_ptr<v1::CampaignService::Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorClient>> CoordinatorClient::Open(
    const SourceFlags& flags) {
  std::string token;
  if (!flags.token_file.empty()) {
    LASTFLOP_ASSIGN_OR_RETURN(token, ReadWholeFile(flags.token_file));
    token = std::string(absl::StripAsciiWhitespace(token));
  }
  LASTFLOP_ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel,
                            OpenChannel({.server = flags.server,
                                         .tls_ca_file = flags.tls_ca_file,
                                         .tls_server_name = flags.tls_server_name}));
  return std::make_unique<GrpcCoordinatorClient>(std::move(channel), flags.server, token);
}

}  // namespace lastflop
