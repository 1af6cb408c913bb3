// list, workers and logs: what a coordinator, or its database, knows beside campaigns' results.

#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/interrupt.h"
#include "cli/list_database.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

std::string UtcText(int64_t at_ms) {
  if (at_ms <= 0) {
    return "";
  }
  const std::time_t seconds = static_cast<std::time_t>(at_ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02dZ", utc.tm_year + 1900, utc.tm_mon + 1,
                         utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

absl::StatusOr<std::vector<CampaignSummary>> Campaigns(const SourceFlags& source) {
  if (!source.server.empty()) {
    LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> client,
                              CoordinatorClient::Open(source));
    return client->List();
  }
  return CampaignsInDatabase(source.db);
}

absl::StatusOr<std::vector<WorkerLine>> Workers(const SourceFlags& source) {
  if (source.server.empty()) {
    return WorkersInDatabase(source.db);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> client,
                            CoordinatorClient::Open(source));
  return client->Workers();
}

}  // namespace

int ListCommand(const ListFlags& flags, Io& io) {
  const absl::StatusOr<std::vector<CampaignSummary>> campaigns = Campaigns(flags.source);
  if (!campaigns.ok()) {
    return ExitCodeFor(campaigns.status(), io.err);
  }
  Rows rows;
  rows.names = {"campaign", "name",    "state",   "created",   "trials",   "done",
                "failed",   "running", "pending", "cancelled", "lost_out", "unmeasured"};
  rows.is_number = {false, false, false, false, true, true, true, true, true, true, true, true};
  for (const CampaignSummary& line : *campaigns) {
    NoteIfAbandoned(flags.source, line.campaign_id, line.state, io.err);
    rows.cells.push_back({line.campaign_id, line.name, std::string(ToWord(line.state)),
                          UtcText(line.created_at_ms), absl::StrCat(line.num_trials),
                          absl::StrCat(line.num_done - line.num_unmeasured),
                          absl::StrCat(line.num_failed), absl::StrCat(line.num_running),
                          absl::StrCat(line.num_pending), absl::StrCat(line.num_cancelled),
                          absl::StrCat(line.num_lost_out), absl::StrCat(line.num_unmeasured)});
  }
  WriteRows(rows, flags.format, io.out);
  return kExitFinished;
}

int WorkersCommand(const ListFlags& flags, Io& io) {
  const absl::StatusOr<std::vector<WorkerLine>> workers = Workers(flags.source);
  if (!workers.ok()) {
    return ExitCodeFor(workers.status(), io.err);
  }
  Rows rows;
  rows.names = {"worker", "device", "host", "state",  "current",
                "done",   "failed", "seen", "reason", "build"};
  rows.is_number = {false, false, false, false, false, true, true, false, false, false};
  for (const WorkerLine& line : *workers) {
    rows.cells.push_back({line.id, line.device, line.host, line.state, line.current,
                          absl::StrCat(line.num_done), absl::StrCat(line.num_failed),
                          UtcText(line.last_seen_ms), line.reason, line.build});
  }
  WriteRows(rows, flags.format, io.out);
  return kExitFinished;
}

int LogsCommand(const LogsFlags& flags, Io& io) {
  const auto print = [&io](const LogLine& line) {
    io.out << OneLine(absl::StrCat(UtcText(line.at_ms), " ", line.source, " ", line.severity, " ",
                                   line.line))
           << "\n"
           << std::flush;
  };
  if (flags.source.server.empty()) {
    const absl::Status status = LogsInDatabase(flags.source.db, flags.of, print);
    return status.ok() ? kExitFinished : ExitCodeFor(status, io.err);
  }
  absl::StatusOr<std::unique_ptr<CoordinatorClient>> client = CoordinatorClient::Open(flags.source);
  const absl::Status status = client.ok()
                                  ? (*client)->Logs(flags.of, flags.follow, InterruptFlag(), print)
                                  : client.status();
  return status.ok() ? kExitFinished : ExitCodeFor(status, io.err);
}

}  // namespace lastflop
