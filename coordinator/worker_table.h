#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/machine.h"
#include "coordinator/options.h"
#include "coordinator/scheduler.h"
#include "db/worker_store.h"

namespace lastflop {

// One stream of a worker; a worker that connects again has a new one. 0 is none.
using SessionId = uint64_t;

// What a worker says of itself when it connects.
struct WorkerHello {
  std::string worker_id;  // "" lets the coordinator name it.
  std::string device;     // "cpu:0", "cuda:1"
  std::string device_uuid;
  std::string host_id;
  std::string host_name;
  int64_t pid = 0;
  std::string build_hash;
  std::string machine_json;
  std::vector<std::string> held_attempt_ids;
  bool allows_commands = false;
  std::set<std::string> plugins;  // Names that moe.kernel=plugin:NAME may have.
};

// Work that a worker failed at, as far as suspicion goes.
struct FailedWork {
  std::string trial_key;     // Of the campaign and the trial.
  std::string intervention;  // Of the campaign, the intervention and its choice: at any point.
  bool is_baseline = false;
  // The same trial succeeded before, here or elsewhere, or did since elsewhere.
  bool is_known_good = false;
};

struct WorkerEntry {
  WorkerRow row;  // Its state is computed: StateOf().
  Machine machine;
  bool allows_commands = false;
  std::set<std::string> plugins;
  SessionId session = 0;  // 0: the stream is broken.
  std::chrono::milliseconds last_seen{0};
  bool is_lost = false;            // Silent for longer than the timeout.
  bool is_quarantined = false;     // Until its process is another one.
  std::set<std::string> attempts;  // Open ones, as any member of their gang.
  // Attempts taken from it that it may still be running: it is not idle until a heartbeat is
  // without them.
  std::set<std::string> draining;
  // Leases taken from it while it was silent, of which it had not said that they started: it may
  // read them yet, and is told to drop them when it is heard of again.
  std::set<std::string> unread;
  bool holds_host = false;        // What it runs has the host alone.
  std::string current;            // What it runs, for people.
  int num_baseline_failures = 0;  // In a row, of a baseline that is known to work.
  std::map<std::string, FailedWork> failed_in_row;  // By trial_key, since the last success.
};

WorkerState StateOf(const WorkerEntry& worker);

// The workers there are and were since the start. Decides nothing about attempts. Not thread-safe.
class WorkerTable {
 public:
  explicit WorkerTable(const CoordinatorOptions& options) : options_(options) {}  // Outlives this.

  // Takes a worker in and gives its id. AlreadyExists: a live worker has the id. InvalidArgument:
  // its machine cannot be read. `replaced` becomes the session that it replaces, or 0.
  absl::StatusOr<std::string> Accept(const WorkerHello& hello, SessionId session,
                                     std::chrono::milliseconds now, SessionId& replaced);

  // nullptr: no worker has it.
  WorkerEntry* Find(absl::string_view worker_id);
  WorkerEntry* FindSession(SessionId session);

  // Workers that can take or already have attempts.
  std::vector<SchedulerWorker> ForScheduler() const;
  // Connected workers that could but for their quarantine, as if they were idle.
  std::vector<SchedulerWorker> Quarantined() const;

  std::map<std::string, WorkerEntry>& workers() { return workers_; }
  const std::map<std::string, WorkerEntry>& workers() const { return workers_; }

 private:
  std::string NameFor(const WorkerHello& hello) const;
  // Whether the worker that has the id is not live, or the same process.
  bool IsGone(const WorkerEntry& worker, const WorkerHello& hello,
              std::chrono::milliseconds now) const;

  const CoordinatorOptions& options_;
  std::map<std::string, WorkerEntry> workers_;  // By worker_id.
};

// What the end of an attempt says about a worker that was a member of it.
struct WorkerVerdict {
  bool is_quarantined = false;
  std::string reason;
};

// Books a success, which ends every suspicion.
void BookSuccess(WorkerEntry& worker);

// Books that another worker succeeded at a trial: a failure at it was not the trial's.
void BookSuccessElsewhere(const std::string& trial_key, WorkerEntry& worker);

// Books a failure that this worker may have caused. Only work that is known to work speaks against
// a worker: a bad intervention fails at every point of a campaign, on every worker. It is
// quarantined by the second failure in a row of a baseline that is known to work (one alone may be
// the host's, an OOM kill say), and, where others can take over, by failures in a row of
// `failures_in_row` different interventions that are.
WorkerVerdict BookFailure(FailedWork work, bool has_others, int failures_in_row,
                          WorkerEntry& worker);

}  // namespace lastflop
