#include "cli/processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/exit_codes.h"
#include "common/spawn_arguments.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr int kGracePolls = 250;  // Of 20 ms.
constexpr int kPollMs = 20;

std::string DescribeExit(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("ended on signal ", WTERMSIG(status));
  }
  return absl::StrCat("ended with exit code ", WEXITSTATUS(status));
}

// Whom a signal to this process' group, as a terminal sends on Ctrl-C, reaches.
enum class Group { kShared, kOwn };

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& arguments, Group group,
                            posix_spawn_file_actions_t* actions) {
  std::vector<std::string> copies = arguments;
  const std::vector<char*> pointers = NullTerminated(copies);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  if (group == Group::kOwn) {
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setpgroup(&attributes, 0);
  }
  pid_t pid = -1;
  const int error = posix_spawn(&pid, pointers[0], actions, &attributes, pointers.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return absl::InternalError(absl::StrCat("starting ", arguments[0], ": ", std::strerror(error)));
  }
  return pid;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProgram>> ChildProgram::Start(
    const std::vector<std::string>& arguments, const std::string& log_file) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!log_file.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log_file.c_str(),
                                     O_WRONLY | O_CREAT | O_APPEND, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  absl::StatusOr<pid_t> pid = Spawn(arguments, Group::kOwn, &actions);
  posix_spawn_file_actions_destroy(&actions);
  LASTFLOP_RETURN_IF_ERROR(pid.status());
  return std::unique_ptr<ChildProgram>(new ChildProgram(*pid));
}

bool ChildProgram::IsRunning() {
  int status = 0;
  if (is_running_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    is_running_ = false;
    exit_text_ = DescribeExit(status);
    exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  return is_running_;
}

void ChildProgram::Terminate() {
  if (IsRunning()) {
    kill(pid_, SIGTERM);
  }
}

ChildProgram::~ChildProgram() {
  Terminate();
  for (int i = 0; i < kGracePolls && IsRunning(); ++i) {
    poll(nullptr, 0, kPollMs);
  }
  if (IsRunning()) {
    kill(pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
  }
}

absl::StatusOr<std::string> OutputOf(const std::vector<std::string>& arguments) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  absl::StatusOr<pid_t> pid = Spawn(arguments, Group::kShared, &actions);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char block[65536];
  ssize_t size = 0;
  while (pid.ok() &&
         ((size = read(ends[0], block, sizeof(block))) > 0 || (size < 0 && errno == EINTR))) {
    output.append(block, size > 0 ? static_cast<size_t>(size) : 0);
  }
  close(ends[0]);
  LASTFLOP_RETURN_IF_ERROR(pid.status());
  int status = 0;
  waitpid(*pid, &status, 0);
  if (status != 0) {
    return ErrorOfExit(WIFEXITED(status) ? WEXITSTATUS(status) : kExitInternal,
                       absl::StrCat(arguments[0], " ", DescribeExit(status)));
  }
  return output;
}

}  // namespace lastflop
