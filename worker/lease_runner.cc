#include "worker/lease_runner.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

AttemptResult NotStarted(const LeasedWork& work, FailureKind kind, const std::string& message) {
  AttemptResult result;
  result.attempt_id = work.attempt.attempt_id;
  result.trial_id = work.attempt.trial_id;
  result.launch = work.launch.launch;
  result.failure = Failure{.kind = kind,
                           .message = absl::StrCat(RankPrefix(work.place), message),
                           .rank = work.place.rank};
  return result;
}

}  // namespace

LeaseRunner::LeaseRunner(std::string device, PluginOptions plugins, LeaseEvents events)
    : device_(std::move(device)),
      plugins_(std::move(plugins)),
      events_(std::move(events)),
      thread_([this] { Loop(); }) {}

LeaseRunner::~LeaseRunner() {
  std::shared_ptr<ChildClient> child;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
    waiting_.clear();
    child = child_;
  }
  changed_.notify_all();
  if (child != nullptr) {
    child->Kill("the worker ends");
  }
  thread_.join();
}

void LeaseRunner::Add(LeasedWork work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void LeaseRunner::Cancel(const std::string& attempt_id, const std::string& reason) {
  std::shared_ptr<ChildClient> child;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::erase_if(waiting_,
                  [&](const LeasedWork& work) { return work.attempt.attempt_id == attempt_id; });
    if (running_id_ == attempt_id) {
      cancelled_id_ = attempt_id;
      cancel_reason_ = reason;
      child = child_;
    }
  }
  if (child != nullptr) {
    child->Kill(reason);
  }
}

std::vector<std::string> LeaseRunner::attempt_ids() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> ids;
  if (!running_id_.empty()) {
    ids.push_back(running_id_);
  }
  for (const LeasedWork& work : waiting_) {
    ids.push_back(work.attempt.attempt_id);
  }
  return ids;
}

std::string LeaseRunner::held_up_attempt_id() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return child_ != nullptr && child_->is_held_up() ? running_id_ : "";
}

void LeaseRunner::Loop() {
  while (true) {
    LeasedWork work;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      running_id_.clear();
      changed_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
      if (is_stopping_) {
        break;
      }
      work = std::move(waiting_.front());
      waiting_.pop_front();
      running_id_ = work.attempt.attempt_id;
    }
    events_.started(work.attempt.attempt_id);
    const absl::StatusOr<AttemptResult> result = RunOne(work);
    const bool is_leader = work.place.rank == 0;
    if (!result.ok()) {
      {
        // First: where the refusal is lost with its stream, the next hello must not name it.
        const std::lock_guard<std::mutex> lock(mutex_);
        running_id_.clear();
      }
      if (is_leader) {
        events_.busy(work.attempt.attempt_id, std::string(result.status().message()));
      }
      continue;
    }
    // A killed or crashed member alone knows the cause; the leader speaks for all else.
    const bool knows_cause =
        result->failure.has_value() && (result->failure->kind == FailureKind::kCrashed ||
                                        result->failure->kind == FailureKind::kTimeout);
    if (is_leader || knows_cause) {
      events_.finished(work, *result);
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  child_.reset();
}

absl::Status LeaseRunner::EnsureChild(const LaunchSpec& launch) {
  std::shared_ptr<ChildClient> old;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (child_ != nullptr && child_->is_alive() && launch_key_ == launch.launch_key) {
      return absl::OkStatus();
    }
    old = std::move(child_);
    child_.reset();
  }
  // The old child's memory and device must be free before the new one starts.
  old.reset();
  LASTFLOP_ASSIGN_OR_RETURN(std::unique_ptr<ChildClient> fresh,
                            ChildClient::Spawn(launch, device_, plugins_));
  Log(LogSeverity::kInfo, "child_started",
      {{"launch_key", launch.launch_key}, {"pid", absl::StrCat(fresh->pid())}});
  const std::lock_guard<std::mutex> lock(mutex_);
  child_ = std::move(fresh);
  launch_key_ = launch.launch_key;
  return absl::OkStatus();
}

absl::StatusOr<AttemptResult> LeaseRunner::RunOne(const LeasedWork& work) {
  events_.progress(work.attempt.attempt_id, "spawning", 0, 0);
  if (const absl::Status spawned = EnsureChild(work.launch); !spawned.ok()) {
    return NotStarted(work, FailureKind::kCrashed, std::string(spawned.message()));
  }
  std::shared_ptr<ChildClient> child;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // From here on Cancel() kills the child that runs the attempt; before, it only left its mark.
    if (cancelled_id_ == work.attempt.attempt_id) {
      return NotStarted(work, FailureKind::kRankLost, absl::StrCat("cancelled: ", cancel_reason_));
    }
    child = child_;
  }
  const std::string& attempt_id = work.attempt.attempt_id;
  return child->Run(
      work.attempt, work.place,
      [&](const std::string& stage, int64_t pairs, double speedup) {
        events_.progress(attempt_id, stage, pairs, speedup);
      },
      [&](const std::string& event, const std::string& text) {
        events_.said(attempt_id, event, text);
      });
}

}  // namespace lastflop
