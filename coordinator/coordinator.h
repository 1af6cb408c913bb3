#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "coordinator/engine.h"
#include "coordinator/event_bus.h"
#include "coordinator/options.h"
#include "coordinator/worker_session.h"
#include "db/database.h"
#include "db/database_file.h"
#include "db/file_lock.h"

namespace lastflop {

// The engine with a thread of its own, which alone touches the engine and writes the database.
// Everything else talks to it through an inbox, so no lock is held while it decides or stores.
// Thread-safe.
//
// An error of the database is final: nothing is answered or acknowledged any more, watchers are
// told, and WaitUntilStopped() returns it. Workers keep their reports for the next coordinator.
class Coordinator {
 public:
  // Opens and locks the database file. FailedPrecondition: another coordinator has it, it is not
  // writable or newer than this binary. `clock` outlives the coordinator.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Create(const std::string& database_path,
                                                             const Clock& clock,
                                                             CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // As Engine; they return when it is stored. Unavailable: the coordinator is stopping.
  absl::StatusOr<SubmitAnswer> Submit(Submission submission);
  absl::StatusOr<int> Cancel(const std::string& campaign_id);
  absl::StatusOr<int> Resume(const std::string& campaign_id);
  // As of the last turn; waits for nobody.
  std::vector<WorkerView> Workers() const;

  // A connection to read with, which no writer holds up.
  absl::StatusOr<Database> OpenReader() const { return OpenForReading(database_path_); }
  EventBus& events() { return events_; }
  const Clock& clock() const { return clock_; }

  // Streams of workers. Messages of a session are handled in the order of Post().
  std::shared_ptr<WorkerSession> OpenSession(std::function<void()> cancel);
  void Post(std::function<absl::Status(Engine&)> message);
  void CloseSession(const WorkerSession& session);

  // Tells all workers to end.
  void ShutDownWorkers(std::string reason);

  // Ends the thread; open attempts stay open in the database.
  void Stop();
  // Blocks until Stop() or an error of the database, at most `timeout`; whether it stopped.
  bool WaitUntilStopped(std::chrono::milliseconds timeout) const;
  // OK unless the database failed.
  absl::Status status() const;

 private:
  // Called with nullptr when the coordinator stops before its turn came.
  using Task = std::function<absl::Status(Engine*)>;

  Coordinator(std::string database_path, const Clock& clock, CoordinatorOptions options,
              FileLock lock, Database database);
  void Loop();
  absl::Status CheckDatabaseIsThere() const;
  absl::Status TakeTurn(std::vector<Task>& tasks);
  void Deliver();
  void Fail(const absl::Status& status);
  void Enqueue(Task task);
  template <typename T>
  absl::StatusOr<T> Call(std::function<absl::StatusOr<T>(Engine&)> function);

  const std::string database_path_;
  const Clock& clock_;  // Outlives this.
  const CoordinatorOptions options_;
  FileLock lock_;
  Database database_;  // Only of the thread once that runs.
  const std::optional<FileIdentity> database_identity_;
  EventBus events_;
  std::unique_ptr<Engine> engine_;  // Only of the thread once that runs.

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<Task> inbox_;                                       // Guarded by mutex_.
  std::map<SessionId, std::shared_ptr<WorkerSession>> sessions_;  // Guarded by mutex_.
  SessionId last_session_ = 0;                                    // Guarded by mutex_.
  std::vector<WorkerView> workers_;                               // Guarded by mutex_.
  bool is_stopping_ = false;                                      // Guarded by mutex_.
  bool has_stopped_ = false;                                      // Guarded by mutex_.
  absl::Status status_;                                           // Guarded by mutex_.
  std::thread thread_;
};

}  // namespace lastflop
