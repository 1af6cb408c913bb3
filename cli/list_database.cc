#include "cli/list_database.h"

#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "db/campaign_reader.h"

namespace lastflop {
namespace {

absl::StatusOr<Database> OpenNamed(const std::string& db) {
  if (db.empty()) {
    return absl::InvalidArgumentError(
        "where to look? name a coordinator with --server ADDR or a database with --db FILE; this "
        "folder has no lastflop.db");
  }
  return OpenForReading(db);
}

}  // namespace

absl::StatusOr<std::vector<CampaignSummary>> CampaignsInDatabase(const std::string& db) {
  LASTFLOP_ASSIGN_OR_RETURN(Database database, OpenNamed(db));
  return ListCampaigns(database);
}

absl::StatusOr<std::vector<WorkerLine>> WorkersInDatabase(const std::string& db) {
  LASTFLOP_ASSIGN_OR_RETURN(Database database, OpenNamed(db));
  LASTFLOP_ASSIGN_OR_RETURN(std::vector<WorkerRow> rows, WorkerStore(database).List());
  std::vector<WorkerLine> lines;
  for (WorkerRow& row : rows) {
    lines.push_back({.id = std::move(row.worker_id),
                     .device = std::move(row.device),
                     .host = std::move(row.host_name),
                     .state = std::string(ToWord(row.state)),
                     .current = "",
                     .last_seen_ms = row.last_seen_at_ms,
                     .num_done = row.num_done,
                     .num_failed = row.num_failed,
                     .reason = std::move(row.reason),
                     .build = std::move(row.build_hash)});
  }
  return lines;
}

absl::Status LogsInDatabase(const std::string& db, const std::string& source,
                            const std::function<void(const LogLine&)>& on_line) {
  LASTFLOP_ASSIGN_OR_RETURN(Database database, OpenNamed(db));
  LASTFLOP_RETURN_IF_ERROR(WorkerStore(database).CheckLogSource(source));
  LASTFLOP_ASSIGN_OR_RETURN(
      const std::vector<LogLine> lines,
      WorkerStore(database).ReadLogs(source, /*after_index=*/0, WorkerStore::kKeptLogLines));
  for (const LogLine& line : lines) {
    on_line(line);
  }
  return absl::OkStatus();
}

}  // namespace lastflop
