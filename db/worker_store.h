#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/words.h"
#include "db/database.h"

namespace lastflop {

// What is known of a worker. A row stays when the worker has gone.
struct WorkerRow {
  std::string worker_id;
  std::string device;
  std::string device_uuid;
  std::string host_id;
  std::string host_name;
  int64_t pid = 0;
  std::string build_hash;
  std::string machine_json;
  WorkerState state = WorkerState::kLost;
  std::string reason;
  int64_t last_seen_at_ms = 0;
  int num_done = 0;
  int num_failed = 0;
};

struct LogLine {
  int64_t log_index = 0;
  int64_t at_ms = 0;
  std::string source;
  std::string severity;  // info, warning, error
  std::string line;
};

// The source of the coordinator's own lines; no worker has this id.
inline constexpr char kCoordinatorSource[] = "coordinator";

// Workers and log lines. Not thread-safe; errors as Database.
class WorkerStore {
 public:
  // Older lines are dropped by TrimLogs().
  static constexpr int kKeptLogLines = 100000;

  explicit WorkerStore(Database& database) : database_(database) {}

  // Adds the worker or replaces its row.
  absl::Status Save(const WorkerRow& worker);
  absl::StatusOr<std::vector<WorkerRow>> List();

  // Severities that are none of the three are stored as `info`.
  absl::Status AppendLogs(const std::vector<LogLine>& lines);
  // Lines after `after_index` of one source ("" for all), oldest first, at most `limit`.
  absl::StatusOr<std::vector<LogLine>> ReadLogs(const std::string& source, int64_t after_index,
                                                int limit);
  // NotFound for a source that is no worker, has no lines and is not the coordinator: the message
  // names those that are. "" is all of them.
  absl::Status CheckLogSource(const std::string& source);
  absl::Status TrimLogs();

 private:
  Database& database_;  // Outlives this.
};

}  // namespace lastflop
