#include "coordinator/campaign_service.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "common/campaign_json.h"
#include "common/status_macros.h"
#include "coordinator/coordinator_codec.h"
#include "coordinator/watcher_service.h"
#include "db/campaign_reader.h"
#include "db/worker_store.h"
#include "planner/trial_speedups.h"
#include "proto/channel_client.h"
#include "proto/codec.h"
#include "proto/valid_utf8.h"

namespace lastflop {
namespace {

v1::WorkerStatus ToStatus(const WorkerRow& row, const std::string& current) {
  v1::WorkerStatus status;
  status.set_worker_id(row.worker_id);
  status.set_device(row.device);
  status.set_host_name(row.host_name);
  status.set_state(std::string(ToWord(row.state)));
  status.set_current(ValidUtf8(current));
  status.set_last_seen_ms(row.last_seen_at_ms);
  status.set_num_done(row.num_done);
  status.set_num_failed(row.num_failed);
  status.set_reason(ValidUtf8(row.reason));
  status.set_build_hash(row.build_hash);
  return status;
}

}  // namespace

grpc::Status CampaignServiceImpl::Submit(grpc::ServerContext* context,
                                         const v1::SubmitRequest* request,
                                         v1::SubmitResponse* response) {
  if (const absl::Status allowed = Authorize(*context); !allowed.ok()) {
    return ToGrpcStatus(allowed);
  }
  if (request->submission_id().empty()) {
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "submission_id is empty");
  }
  absl::StatusOr<Campaign> campaign = CampaignFromJson(request->campaign_json());
  if (!campaign.ok()) {
    return grpc::Status(
        grpc::StatusCode::INVALID_ARGUMENT,
        absl::StrCat("campaign_json: ", ValidUtf8(std::string(campaign.status().message()))));
  }
  const std::vector<std::string> warnings = campaign->warnings;
  const absl::StatusOr<SubmitAnswer> answer =
      coordinator_.Submit({.submission_id = request->submission_id(),
                           .campaign = *std::move(campaign),
                           .source_yaml = request->source_yaml(),
                           .source_name = request->source_name()});
  if (!answer.ok()) {
    return ToGrpcStatus(answer.status());
  }
  response->set_campaign_id(answer->campaign_id);
  response->set_num_trials(answer->num_trials);
  for (const std::string& warning : warnings) {
    response->add_warnings(ValidUtf8(warning));
  }
  return grpc::Status::OK;
}

grpc::Status CampaignServiceImpl::List(grpc::ServerContext* context,
                                       const v1::ListRequest* /*request*/,
                                       v1::ListResponse* response) {
  if (const absl::Status allowed = Authorize(*context); !allowed.ok()) {
    return ToGrpcStatus(allowed);
  }
  absl::StatusOr<Database> database = coordinator_.OpenReader();
  if (!database.ok()) {
    return ToGrpcStatus(database.status());
  }
  const absl::StatusOr<std::vector<CampaignSummary>> campaigns = ListCampaigns(*database);
  if (!campaigns.ok()) {
    return ToGrpcStatus(campaigns.status());
  }
  for (const CampaignSummary& campaign : *campaigns) {
    *response->add_campaigns() = ToProto(campaign);
  }
  return grpc::Status::OK;
}

grpc::Status CampaignServiceImpl::Show(grpc::ServerContext* context, const v1::ShowRequest* request,
                                       v1::ShowResponse* response) {
  auto begun = Begin(*context, request->campaign_id());
  if (!begun.ok()) {
    return ToGrpcStatus(begun.status());
  }
  const absl::StatusOr<CampaignResults> results = ReadCampaign(begun->first, begun->second);
  if (!results.ok()) {
    return ToGrpcStatus(results.status());
  }
  *response->mutable_summary() = ToProto(Summarize(*results));
  const std::map<std::string, double> speedups = TrialSpeedups(*results);
  for (const TrialRecord& trial : results->trials) {
    v1::TrialStatus& status = *response->add_trials();
    status = ToProto(trial, results->campaign).status();
    status.set_state(std::string(WordOf(trial)));
    if (const auto found = speedups.find(trial.spec.trial_id); found != speedups.end()) {
      status.set_speedup(found->second);
    }
  }
  return grpc::Status::OK;
}

grpc::Status CampaignServiceImpl::Watch(grpc::ServerContext* context,
                                        const v1::WatchRequest* request,
                                        grpc::ServerWriter<v1::WatchEvent>* writer) {
  auto begun = Begin(*context, request->campaign_id());
  if (!begun.ok()) {
    return ToGrpcStatus(begun.status());
  }
  return WatchCampaign(*context, coordinator_.events(), begun->first, begun->second,
                       request->after_sequence(), *writer);
}

grpc::Status CampaignServiceImpl::Cancel(grpc::ServerContext* context,
                                         const v1::CancelRequest* request,
                                         v1::CancelResponse* response) {
  auto begun = Begin(*context, request->campaign_id());
  if (!begun.ok()) {
    return ToGrpcStatus(begun.status());
  }
  const absl::StatusOr<int> num_trials = coordinator_.Cancel(begun->second);
  if (!num_trials.ok()) {
    return ToGrpcStatus(num_trials.status());
  }
  response->set_num_trials_cancelled(*num_trials);
  return grpc::Status::OK;
}

grpc::Status CampaignServiceImpl::Resume(grpc::ServerContext* context,
                                         const v1::ResumeRequest* request,
                                         v1::ResumeResponse* response) {
  auto begun = Begin(*context, request->campaign_id());
  if (!begun.ok()) {
    return ToGrpcStatus(begun.status());
  }
  const absl::StatusOr<int> num_trials = coordinator_.Resume(begun->second);
  if (!num_trials.ok()) {
    return ToGrpcStatus(num_trials.status());
  }
  response->set_num_trials_pending(*num_trials);
  return grpc::Status::OK;
}

grpc::Status CampaignServiceImpl::Fetch(grpc::ServerContext* context,
                                        const v1::FetchRequest* request,
                                        grpc::ServerWriter<v1::FetchPiece>* writer) {
  auto begun = Begin(*context, request->campaign_id());
  if (!begun.ok()) {
    return ToGrpcStatus(begun.status());
  }
  const absl::StatusOr<CampaignResults> results = ReadCampaign(begun->first, begun->second);
  if (!results.ok()) {
    return ToGrpcStatus(results.status());
  }
  for (const v1::FetchPiece& piece : ToPieces(*results)) {
    if (!writer->Write(piece)) {
      return grpc::Status::CANCELLED;
    }
  }
  return grpc::Status::OK;
}

grpc::Status CampaignServiceImpl::ListWorkers(grpc::ServerContext* context,
                                              const v1::ListWorkersRequest* /*request*/,
                                              v1::ListWorkersResponse* response) {
  if (const absl::Status allowed = Authorize(*context); !allowed.ok()) {
    return ToGrpcStatus(allowed);
  }
  // Those of earlier lives of the coordinator come from the database.
  absl::StatusOr<Database> database = coordinator_.OpenReader();
  if (!database.ok()) {
    return ToGrpcStatus(database.status());
  }
  const absl::StatusOr<std::vector<WorkerRow>> rows = WorkerStore(*database).List();
  if (!rows.ok()) {
    return ToGrpcStatus(rows.status());
  }
  std::map<std::string, v1::WorkerStatus> workers;
  for (const WorkerRow& row : *rows) {
    workers[row.worker_id] = ToStatus(row, "");
  }
  for (const WorkerView& view : coordinator_.Workers()) {
    workers[view.row.worker_id] = ToStatus(view.row, view.current);
  }
  for (auto& [worker_id, worker] : workers) {
    *response->add_workers() = std::move(worker);
  }
  return grpc::Status::OK;
}

grpc::Status CampaignServiceImpl::Logs(grpc::ServerContext* context, const v1::LogsRequest* request,
                                       grpc::ServerWriter<v1::LogEntry>* writer) {
  if (const absl::Status allowed = Authorize(*context); !allowed.ok()) {
    return ToGrpcStatus(allowed);
  }
  absl::StatusOr<Database> database = coordinator_.OpenReader();
  if (!database.ok()) {
    return ToGrpcStatus(database.status());
  }
  return WatchLogs(*context, coordinator_.events(), *database, request->source(), request->follow(),
                   *writer);
}

absl::Status CampaignServiceImpl::Authorize(const grpc::ServerContext& context) const {
  if (token_.empty()) {
    return absl::OkStatus();
  }
  const auto header = context.client_metadata().find("authorization");
  const bool is_right =
      header != context.client_metadata().end() &&
      std::string(header->second.data(), header->second.size()) == absl::StrCat("Bearer ", token_);
  return is_right ? absl::OkStatus()
                  : absl::UnauthenticatedError("the token is missing or wrong: give --token-file");
}

absl::StatusOr<std::pair<Database, std::string>> CampaignServiceImpl::Begin(
    const grpc::ServerContext& context, const std::string& reference) const {
  LASTFLOP_RETURN_IF_ERROR(Authorize(context));
  LASTFLOP_ASSIGN_OR_RETURN(Database database, coordinator_.OpenReader());
  LASTFLOP_ASSIGN_OR_RETURN(std::string campaign_id, ResolveCampaign(database, reference));
  return std::pair(std::move(database), std::move(campaign_id));
}

}  // namespace lastflop
