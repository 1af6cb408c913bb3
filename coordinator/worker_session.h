#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>

#include "coordinator/outgoing.h"

namespace lastflop {

// One stream of a worker, between the thread that decides and the threads that talk. Thread-safe.
class WorkerSession {
 public:
  // `cancel` ends the stream from outside; it may be called until Finish().
  WorkerSession(SessionId id, std::chrono::milliseconds now, std::function<void()> cancel)
      : id_(id), last_seen_ms_(now.count()), cancel_(std::move(cancel)) {}

  SessionId id() const { return id_; }

  // Something came from the worker. Not a decision: it needs no turn of the deciding thread, so a
  // long write to the database loses no worker.
  void Touch(std::chrono::milliseconds now) { last_seen_ms_ = now.count(); }
  std::chrono::milliseconds last_seen() const {
    return std::chrono::milliseconds(last_seen_ms_.load());
  }

  void Push(CoordinatorMessage message);
  // Blocks until there is a message. nullopt: closed, and all is sent.
  std::optional<CoordinatorMessage> Pop();
  // No further message; those before are still sent.
  void Close();

  // Breaks the stream.
  void Cancel();
  // The stream is over: Cancel() does nothing from now on.
  void Finish();

 private:
  const SessionId id_;
  std::atomic<int64_t> last_seen_ms_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CoordinatorMessage> queue_;  // Guarded by mutex_.
  bool is_closed_ = false;                // Guarded by mutex_.
  std::function<void()> cancel_;          // Guarded by mutex_.
};

}  // namespace lastflop
