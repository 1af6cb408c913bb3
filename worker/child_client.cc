#include "worker/child_client.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/spawn_arguments.h"
#include "common/status_macros.h"
#include "lastflop/v1/child.pb.h"
#include "proto/codec.h"
#include "worker/child_service.h"

namespace lastflop {
namespace {

constexpr std::chrono::seconds kReadyTimeout{60};
constexpr std::chrono::milliseconds kPoll{100};

// A copy of `fd` above the numbers that a child has its own under: posix_spawn's dup2 onto the same
// number would keep close-on-exec. To be closed.
int AboveChildFds(int fd) {
  return fcntl(fd, F_DUPFD_CLOEXEC, std::max(kChildPipeFd, kPluginWatchFd) + 1);
}

// Starts this binary as a child that has `pipe_fd` as kChildPipeFd and `watch_fd` as
// kPluginWatchFd.
absl::StatusOr<pid_t> SpawnSelf(int pipe_fd, int watch_fd,
                                const std::map<std::string, std::string>& env) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe_fd, kChildPipeFd);
  posix_spawn_file_actions_adddup2(&actions, watch_fd, kPluginWatchFd);
  std::vector<std::string> arguments = {"lastflop-worker", std::string(kChildFlag),
                                        absl::StrCat(getpid())};
  std::vector<std::string> environment = MergedEnvironment(env);
  std::vector<char*> argument_pointers = NullTerminated(arguments);
  std::vector<char*> environment_pointers = NullTerminated(environment);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, argument_pointers.data(),
                                environment_pointers.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("spawning a child: ", std::strerror(error)));
  }
  return pid;
}

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return absl::StrCat("the child ended on signal ", number, " (", strsignal(number), ")",
                        number == SIGKILL ? ": killed, or out of memory" : "");
  }
  return absl::StrCat("the child ended with exit code ", WEXITSTATUS(status));
}

}  // namespace

std::string RankPrefix(const GangPlace& place) {
  return place.num_ranks > 1 ? absl::StrCat("rank ", place.rank, " of ", place.num_ranks, ": ")
                             : "";
}

absl::StatusOr<std::unique_ptr<ChildClient>> ChildClient::Spawn(const LaunchSpec& launch,
                                                                const std::string& device,
                                                                const PluginOptions& plugins) {
  LASTFLOP_ASSIGN_OR_RETURN(PluginWatch watch, PluginWatch::Create());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::InternalError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  MessagePipe own(ends[0]);
  const int child_end = AboveChildFds(ends[1]);
  const int watch_fd = AboveChildFds(watch.fd());
  close(ends[1]);
  absl::StatusOr<pid_t> pid = SpawnSelf(child_end, watch_fd, launch.env);
  close(child_end);
  close(watch_fd);
  LASTFLOP_RETURN_IF_ERROR(pid.status());
  auto client = std::unique_ptr<ChildClient>(
      new ChildClient(*pid, std::move(own), launch.launch, std::move(watch), plugins.call_limit));

  v1::ChildRequest request;
  *request.mutable_start()->mutable_launch() = ToProto(launch);
  request.mutable_start()->set_device(device);
  for (const auto& [name, file] : plugins.files) {
    v1::PluginFile& plugin = *request.mutable_start()->add_plugins();
    plugin.set_name(name);
    plugin.set_path(file.path);
    plugin.set_fingerprint(file.fingerprint);
  }
  absl::Status status = client->pipe_.Send(request.SerializeAsString());
  if (status.ok()) {
    absl::StatusOr<std::string> answer = client->pipe_.Receive(kReadyTimeout);
    v1::ChildReply reply;
    if (!answer.ok()) {
      status = answer.status();
    } else if (!reply.ParseFromString(*answer) || !reply.has_ready()) {
      status = absl::InternalError("the child's first message is not ready");
    } else if (!reply.ready().error().empty()) {
      status = absl::InternalError(reply.ready().error());
    }
  }
  if (!status.ok()) {
    return absl::InternalError(
        absl::StrCat("starting a child: ", status.message(), "; ", client->Reap()));
  }
  return client;
}

ChildClient::~ChildClient() { Reap(); }

std::optional<std::string> ChildClient::KilledFor() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return killed_for_;
}

void ChildClient::Kill(const std::string& reason) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!killed_for_.has_value()) {
      killed_for_ = reason;
    }
  }
  if (is_alive_) {
    kill(pid_, SIGKILL);
  }
}

bool EndsChild(const AttemptResult& result) {
  return result.failure.has_value() && result.failure->kind == FailureKind::kDeviceFault;
}

std::string ChildClient::Reap() {
  if (!is_alive_.exchange(false)) {
    return "the child had ended before";
  }
  int status = 0;
  // A child that closed its pipe by dying is dead or nearly so: what it died of is worth a moment.
  for (int i = 0; i < 50; ++i) {
    const pid_t reaped = waitpid(pid_, &status, WNOHANG);
    if (reaped == pid_) {
      return DescribeExit(status);
    }
    poll(nullptr, 0, 2);
  }
  kill(pid_, SIGKILL);
  waitpid(pid_, &status, 0);
  return DescribeExit(status);
}

AttemptResult ChildClient::Ended(const AttemptSpec& attempt, FailureKind kind,
                                 const std::string& message, const GangPlace& place) {
  AttemptResult result;
  result.attempt_id = attempt.attempt_id;
  result.trial_id = attempt.trial_id;
  result.launch = launch_;
  result.failure = Failure{
      .kind = kind, .message = absl::StrCat(RankPrefix(place), message), .rank = place.rank};
  return result;
}

std::string ChildClient::WhyGiveUp(std::chrono::steady_clock::time_point end,
                                   std::chrono::milliseconds deadline) const {
  const auto seconds = [](std::chrono::milliseconds time) {
    return absl::StrFormat("%.1f s", std::chrono::duration<double>(time).count());
  };
  const PluginWatch::Place in = watch_.Current();
  if (!in.where.empty() && in.since >= plugin_call_limit_) {
    return absl::StrCat("no return after ", seconds(plugin_call_limit_), ", ", in.where);
  }
  if (std::chrono::steady_clock::now() < end) {
    return "";
  }
  return absl::StrCat("no result after ", seconds(deadline), in.where.empty() ? "" : ", ",
                      in.where);
}

absl::StatusOr<AttemptResult> ChildClient::Run(const AttemptSpec& attempt, const GangPlace& place,
                                               const ProgressCallback& progress,
                                               const NoteCallback& note) {
  v1::ChildRequest request;
  *request.mutable_run()->mutable_attempt() = ToProto(attempt);
  *request.mutable_run()->mutable_place() = ToProto(place);
  is_held_up_ = false;
  absl::Status status = pipe_.Send(request.SerializeAsString());
  const auto end = std::chrono::steady_clock::now() + attempt.deadline;
  while (status.ok()) {
    absl::StatusOr<std::string> answer = pipe_.Receive(kPoll);
    if (absl::IsDeadlineExceeded(answer.status())) {
      const std::string why = WhyGiveUp(end, attempt.deadline);
      if (why.empty()) {
        continue;
      }
      kill(pid_, SIGKILL);
      Reap();
      return Ended(attempt, FailureKind::kTimeout, why, place);
    }
    if (!answer.ok()) {
      break;
    }
    v1::ChildReply reply;
    if (!reply.ParseFromString(*answer)) {
      break;
    }
    if (reply.has_progress()) {
      is_held_up_ = reply.progress().is_held_up();
      progress(reply.progress().stage(), reply.progress().pairs(), reply.progress().speedup());
    } else if (reply.has_note()) {
      note(reply.note().event(), reply.note().text());
    } else if (reply.has_busy()) {
      return absl::UnavailableError(reply.busy().reason());
    } else if (reply.has_result()) {
      absl::StatusOr<AttemptResult> result = FromProto(reply.result());
      if (result.ok()) {
        if (EndsChild(*result)) {
          kill(pid_, SIGKILL);
          Reap();
        }
        return *std::move(result);
      }
      status = result.status();
    }
  }
  std::string how = Reap();
  if (!status.ok() && !absl::IsUnavailable(status)) {
    return Ended(attempt, FailureKind::kInternal, std::string(status.message()), place);
  }
  if (const std::optional<std::string> reason = KilledFor()) {
    return Ended(attempt, FailureKind::kRankLost, absl::StrCat("cancelled: ", *reason), place);
  }
  if (const PluginWatch::Place in = watch_.Current(); !in.where.empty()) {
    absl::StrAppend(&how, ", ", in.where);
  }
  return Ended(attempt, FailureKind::kCrashed, how, place);
}

}  // namespace lastflop
