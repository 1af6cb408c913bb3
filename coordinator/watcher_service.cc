#include "coordinator/watcher_service.h"

#include <chrono>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator_codec.h"
#include "db/campaign_reader.h"
#include "db/event_rows.h"
#include "db/worker_store.h"
#include "proto/channel_client.h"

namespace lastflop {
namespace {

constexpr int kPage = 500;
// How often a watcher that hears nothing looks whether its client is still there.
constexpr std::chrono::milliseconds kPoll{200};

grpc::Status StoppedStatus(const absl::Status& reason) {
  return reason.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the coordinator shuts down")
                     : grpc::Status(grpc::StatusCode::INTERNAL,
                                    absl::StrCat("the coordinator cannot store results: ",
                                                 reason.message()));
}

}  // namespace

grpc::Status WatchCampaign(grpc::ServerContext& context, const EventBus& events, Database& database,
                           const std::string& campaign_id, int64_t after_sequence,
                           grpc::ServerWriter<v1::WatchEvent>& writer) {
  int64_t sequence = after_sequence;
  int64_t progress_version = 0;
  while (!context.IsCancelled()) {
    // Read before the database, so that what is stored meanwhile wakes the wait below.
    const int64_t version = events.version();
    const std::optional<absl::Status> stopped = events.stopped();
    const absl::StatusOr<RunState> state = ReadRunState(database, campaign_id);
    if (!state.ok()) {
      return ToGrpcStatus(state.status());
    }
    const absl::StatusOr<std::vector<CampaignEvent>> page =
        ReadEvents(database, campaign_id, sequence, kPage);
    if (!page.ok()) {
      return ToGrpcStatus(page.status());
    }
    for (const CampaignEvent& event : *page) {
      sequence = event.sequence;
      if (!writer.Write(ToProto(event))) {
        return grpc::Status::CANCELLED;
      }
    }
    if (page->size() == kPage) {
      continue;
    }
    if (state->state != CampaignState::kRunning) {
      return grpc::Status::OK;
    }
    if (std::optional<CampaignEvent> progress =
            events.ProgressAfter(campaign_id, progress_version)) {
      progress->sequence = sequence;  // It has no own one: whoever continues misses nothing.
      if (!writer.Write(ToProto(*progress))) {
        return grpc::Status::CANCELLED;
      }
    }
    progress_version = version;
    if (stopped.has_value()) {
      return StoppedStatus(*stopped);
    }
    events.WaitForNews(version, kPoll);
  }
  return grpc::Status::CANCELLED;
}

grpc::Status WatchLogs(grpc::ServerContext& context, const EventBus& events, Database& database,
                       const std::string& source, bool follow,
                       grpc::ServerWriter<v1::LogEntry>& writer) {
  WorkerStore store(database);
  if (const absl::Status known = store.CheckLogSource(source); !known.ok()) {
    return ToGrpcStatus(known);
  }
  int64_t log_index = 0;
  while (!context.IsCancelled()) {
    const int64_t version = events.version();
    const std::optional<absl::Status> stopped = events.stopped();
    const absl::StatusOr<std::vector<LogLine>> lines = store.ReadLogs(source, log_index, kPage);
    if (!lines.ok()) {
      return ToGrpcStatus(lines.status());
    }
    for (const LogLine& line : *lines) {
      log_index = line.log_index;
      if (!writer.Write(ToProto(line))) {
        return grpc::Status::CANCELLED;
      }
    }
    if (lines->size() == kPage) {
      continue;
    }
    if (!follow) {
      return grpc::Status::OK;
    }
    if (stopped.has_value()) {
      return StoppedStatus(*stopped);
    }
    events.WaitForNews(version, kPoll);
  }
  return grpc::Status::CANCELLED;
}

}  // namespace lastflop
