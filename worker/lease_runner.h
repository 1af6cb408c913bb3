#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/attempt.h"
#include "common/trial.h"
#include "worker/child_client.h"

namespace lastflop {

// Work for this worker as one member of a gang.
struct LeasedWork {
  LaunchSpec launch;
  AttemptSpec attempt;
  GangPlace place;
};

// What a lease runner tells the outside. Called from its thread, never with a lock held.
struct LeaseEvents {
  std::function<void(const std::string& attempt_id)> started;
  std::function<void(const std::string& attempt_id, const std::string& stage, int64_t pairs,
                     double speedup)>
      progress;
  // Something of the attempt that belongs into the log.
  std::function<void(const std::string& attempt_id, const std::string& event,
                     const std::string& text)>
      said = [](const std::string&, const std::string&, const std::string&) {};
  // The leader calls it when nothing ran, as other processes measured on the host for too long.
  std::function<void(const std::string& attempt_id, const std::string& reason)> busy =
      [](const std::string&, const std::string&) {};
  // Every rank calls it for a result that its gang must hear of: the leader's result, and a
  // failure that only this rank knows the cause of (its child died).
  std::function<void(const LeasedWork& work, const AttemptResult& result)> finished;
};

// Runs leases one after another on a thread of its own, in one child process that is kept while
// the launch key stays the same and the child is healthy. Thread-safe.
class LeaseRunner {
 public:
  LeaseRunner(std::string device, PluginOptions plugins, LeaseEvents events);
  // Kills the child and joins.
  ~LeaseRunner();
  LeaseRunner(const LeaseRunner&) = delete;
  LeaseRunner& operator=(const LeaseRunner&) = delete;

  void Add(LeasedWork work);

  // Drops a waiting attempt or kills the child at work on it; another attempt id is ignored.
  void Cancel(const std::string& attempt_id, const std::string& reason);

  // Ids of the attempts waiting or running.
  std::vector<std::string> attempt_ids() const;

  // The running attempt while it waits for a device on which another process measures; else "".
  std::string held_up_attempt_id() const;

 private:
  void Loop();
  // Unavailable: nothing ran, as other processes measured.
  absl::StatusOr<AttemptResult> RunOne(const LeasedWork& work);
  absl::Status EnsureChild(const LaunchSpec& launch);

  const std::string device_;
  const PluginOptions plugins_;
  const LeaseEvents events_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LeasedWork> waiting_;      // Guarded by mutex_.
  std::string running_id_;              // Guarded by mutex_.
  std::string cancelled_id_;            // Guarded by mutex_; of the running attempt.
  std::string cancel_reason_;           // Guarded by mutex_; of cancelled_id_.
  bool is_stopping_ = false;            // Guarded by mutex_.
  std::shared_ptr<ChildClient> child_;  // Guarded by mutex_; shared so that Cancel() can kill a
                                        // child that Loop() is waiting for.
  std::string launch_key_;              // Only of Loop()'s thread.
  std::thread thread_;
};

}  // namespace lastflop
