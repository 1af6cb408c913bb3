#include "db/worker_store.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "db/report_rows.h"

namespace lastflop {
namespace {

constexpr absl::string_view kSaveWorker = R"sql(
    INSERT OR REPLACE INTO workers (worker_id, device, device_uuid, host_id, host_name, pid,
                                    build_hash, machine_json, state, reason, last_seen_at_ms,
                                    num_done, num_failed)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13))sql";

constexpr absl::string_view kSelectWorkers = R"sql(
    SELECT worker_id, device, device_uuid, host_id, host_name, pid, build_hash, machine_json, state,
           reason, last_seen_at_ms, num_done, num_failed
      FROM workers ORDER BY worker_id)sql";

constexpr absl::string_view kInsertLog =
    "INSERT INTO logs (at_ms, source, severity, line) VALUES (?1, ?2, ?3, ?4)";

constexpr absl::string_view kSelectLogs = R"sql(
    SELECT log_index, at_ms, source, severity, line FROM logs
     WHERE log_index > ?2 AND (?1 = '' OR source = ?1) ORDER BY log_index LIMIT ?3)sql";

constexpr absl::string_view kSelectLogSources = R"sql(
    SELECT ?1 UNION SELECT worker_id FROM workers UNION SELECT source FROM logs ORDER BY 1)sql";

constexpr absl::string_view kTrimLogs = R"sql(
    DELETE FROM logs WHERE log_index <= (SELECT max(log_index) FROM logs) - ?1)sql";

}  // namespace

absl::Status WorkerStore::Save(const WorkerRow& worker) {
  return database_
      .Execute(kSaveWorker, worker.worker_id, worker.device, worker.device_uuid, worker.host_id,
               worker.host_name, worker.pid, worker.build_hash, worker.machine_json,
               ToWord(worker.state), worker.reason, worker.last_seen_at_ms, worker.num_done,
               worker.num_failed)
      .status();
}

absl::StatusOr<std::vector<WorkerRow>> WorkerStore::List() {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database_.Prepare(kSelectWorkers));
  std::vector<WorkerRow> workers;
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return workers;
    }
    WorkerRow worker{.worker_id = rows.Text(0),
                     .device = rows.Text(1),
                     .device_uuid = rows.Text(2),
                     .host_id = rows.Text(3),
                     .host_name = rows.Text(4),
                     .pid = rows.Integer(5),
                     .build_hash = rows.Text(6),
                     .machine_json = rows.Text(7),
                     .reason = rows.Text(9),
                     .last_seen_at_ms = rows.Integer(10),
                     .num_done = static_cast<int>(rows.Integer(11)),
                     .num_failed = static_cast<int>(rows.Integer(12))};
    LASTFLOP_ASSIGN_OR_RETURN(worker.state, ReadWord<WorkerState>(rows, 8, "workers.state"));
    workers.push_back(std::move(worker));
  }
}

absl::Status WorkerStore::AppendLogs(const std::vector<LogLine>& lines) {
  LASTFLOP_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  LASTFLOP_ASSIGN_OR_RETURN(Statement statement, database_.Prepare(kInsertLog));
  for (const LogLine& line : lines) {
    const bool is_known = line.severity == "warning" || line.severity == "error";
    statement.Bind(line.at_ms)
        .Bind(line.source)
        .Bind(is_known ? absl::string_view(line.severity) : "info")
        .Bind(line.line);
    LASTFLOP_RETURN_IF_ERROR(statement.Run().status());
  }
  return transaction.Commit();
}

absl::StatusOr<std::vector<LogLine>> WorkerStore::ReadLogs(const std::string& source,
                                                           int64_t after_index, int limit) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database_.Prepare(kSelectLogs));
  rows.Bind(source).Bind(after_index).Bind(limit);
  std::vector<LogLine> lines;
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return lines;
    }
    lines.push_back({.log_index = rows.Integer(0),
                     .at_ms = rows.Integer(1),
                     .source = rows.Text(2),
                     .severity = rows.Text(3),
                     .line = rows.Text(4)});
  }
}

absl::Status WorkerStore::CheckLogSource(const std::string& source) {
  if (source.empty()) {
    return absl::OkStatus();
  }
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database_.Prepare(kSelectLogSources));
  rows.Bind(kCoordinatorSource);
  std::vector<std::string> known;
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return absl::NotFoundError(
          absl::StrCat("logs of \"", source, "\": there are logs of ", absl::StrJoin(known, ", ")));
    }
    known.push_back(rows.Text(0));
    if (known.back() == source) {
      return absl::OkStatus();
    }
  }
}

absl::Status WorkerStore::TrimLogs() {
  return database_.Execute(kTrimLogs, kKeptLogLines).status();
}

}  // namespace lastflop
