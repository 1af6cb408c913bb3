#include "coordinator/worker_session.h"

#include <utility>

namespace lastflop {

void WorkerSession::Push(CoordinatorMessage message) {
  const std::lock_guard lock(mutex_);
  if (!is_closed_) {
    queue_.push_back(std::move(message));
    changed_.notify_all();
  }
}

std::optional<CoordinatorMessage> WorkerSession::Pop() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_closed_ || !queue_.empty(); });
  if (queue_.empty()) {
    return std::nullopt;
  }
  CoordinatorMessage message = std::move(queue_.front());
  queue_.pop_front();
  return message;
}

void WorkerSession::Close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

void WorkerSession::Cancel() {
  // Under the lock: the stream must not end between the look at cancel_ and the call.
  const std::lock_guard lock(mutex_);
  if (cancel_) {
    cancel_();
  }
}

void WorkerSession::Finish() {
  const std::lock_guard lock(mutex_);
  cancel_ = nullptr;
}

}  // namespace lastflop
