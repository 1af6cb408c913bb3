#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/attempt.h"
#include "common/plugin_files.h"
#include "common/trial.h"
#include "worker/message_pipe.h"
#include "worker/plugin_watch.h"

namespace lastflop {

// Whether the child that gave this result is of no more use: its device context is gone with
// everything in it, and what it ran next would fail for the one before.
bool EndsChild(const AttemptResult& result);

// What a worker's children may load.
struct PluginOptions {
  PluginFiles files;
  // A call into a plugin that lasts longer is given up: the child is killed.
  std::chrono::milliseconds call_limit{60000};
};

// What failures of one of several ranks begin with: "rank 1 of 2: "; "" for a single one.
std::string RankPrefix(const GangPlace& place);

// The worker's side of one child process: the binary itself, started again with `--child`. The
// child is killed when this is destroyed and when the worker dies. Run() by one thread at a time;
// Kill() by any.
class ChildClient {
 public:
  // Spawns the child (never forks without exec: CUDA does not survive it) with `launch.env` added
  // to the environment, and waits until it is ready.
  static absl::StatusOr<std::unique_ptr<ChildClient>> Spawn(const LaunchSpec& launch,
                                                            const std::string& device,
                                                            const PluginOptions& plugins);
  ~ChildClient();
  ChildClient(const ChildClient&) = delete;
  ChildClient& operator=(const ChildClient&) = delete;

  using ProgressCallback =
      std::function<void(const std::string& stage, int64_t pairs, double speedup)>;
  // What the child wants in the worker's log.
  using NoteCallback = std::function<void(const std::string& event, const std::string& text)>;

  // Runs one attempt and waits for it. A child that ends, or is still at it after
  // `attempt.deadline`, gives a result with a failure ("signal 9", "no result after 60 s"); it is
  // dead then (is_alive() false). So is one that does not return from a plugin. Where the child was
  // in a plugin, the message says so. Unavailable: other processes measured on the host for too
  // long, and nothing ran.
  absl::StatusOr<AttemptResult> Run(const AttemptSpec& attempt, const GangPlace& place,
                                    const ProgressCallback& progress, const NoteCallback& note);

  // Ends the child; a Run() in progress returns kRankLost with "cancelled: `reason`".
  void Kill(const std::string& reason);

  bool is_alive() const { return is_alive_; }
  // Whether a Run() in progress waits for a device on which another process measures.
  bool is_held_up() const { return is_held_up_; }
  pid_t pid() const { return pid_; }

 private:
  ChildClient(pid_t pid, MessagePipe pipe, int launch, PluginWatch watch,
              std::chrono::milliseconds plugin_call_limit)
      : pid_(pid),
        launch_(launch),
        plugin_call_limit_(plugin_call_limit),
        pipe_(std::move(pipe)),
        watch_(std::move(watch)) {}

  // Why the child is to be given up; "" while it is not.
  std::string WhyGiveUp(std::chrono::steady_clock::time_point end,
                        std::chrono::milliseconds deadline) const;

  // The reason of the first Kill(), if there was one.
  std::optional<std::string> KilledFor();
  // Kills the process if it still runs, reaps it and says how it ended.
  std::string Reap();
  AttemptResult Ended(const AttemptSpec& attempt, FailureKind kind, const std::string& message,
                      const GangPlace& place);

  const pid_t pid_;
  const int launch_;
  const std::chrono::milliseconds plugin_call_limit_;
  MessagePipe pipe_;
  const PluginWatch watch_;
  std::atomic<bool> is_alive_{true};
  std::atomic<bool> is_held_up_{false};
  std::mutex mutex_;
  std::optional<std::string> killed_for_;  // Guarded by mutex_; set once Kill() was called.
};

}  // namespace lastflop
