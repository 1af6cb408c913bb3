#include "tests/e2e/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace lastflop {
namespace {

constexpr int kPollMs = 10;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace

Program::Program(const std::string& folder, const std::string& name,
                 std::vector<std::string> arguments) {
  static std::atomic<int> count{0};
  const std::string stem = folder + "/" + name + "-" + std::to_string(count++);
  out_file_ = stem + ".out";
  err_file_ = stem + ".err";
  const char* bin = std::getenv("LASTFLOP_BIN_DIR");
  const std::string path = std::string(bin != nullptr ? bin : "build/bin") + "/" + name;
  arguments.insert(arguments.begin(), path);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) {
    pointers.push_back(argument.data());
  }
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  const int flags = O_WRONLY | O_CREAT | O_TRUNC;
  posix_spawn_file_actions_addopen(&actions, 1, out_file_.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, 2, err_file_.c_str(), flags, 0600);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  if (posix_spawn(&pid_, path.c_str(), &actions, &attributes, pointers.data(), environ) != 0) {
    // Nothing to wait for, and a signal to process -1 would go to every process there is.
    std::fprintf(stderr, "cannot start %s: is LASTFLOP_BIN_DIR right?\n", path.c_str());
    std::exit(1);
  }
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
}

Program::~Program() {
  if (!is_reaped_) {
    kill(pid_, SIGCONT);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

int Program::Wait(std::chrono::seconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!is_reaped_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) == pid_) {
      is_reaped_ = true;
      code_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    } else if (std::chrono::steady_clock::now() > end) {
      kill(pid_, SIGKILL);
      waitpid(pid_, &status, 0);
      is_reaped_ = true;
      code_ = -1000;
    } else {
      poll(nullptr, 0, kPollMs);
    }
  }
  return code_;
}

void Program::Signal(int number) const { kill(pid_, number); }
void Program::SignalGroup(int number) const { kill(-pid_, number); }

std::string Program::Out() const { return ReadAll(out_file_); }
std::string Program::Err() const { return ReadAll(err_file_); }

bool Program::WaitForErr(const std::string& text, std::chrono::seconds timeout) const {
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (Err().find(text) == std::string::npos) {
    if (std::chrono::steady_clock::now() > end || kill(pid_, 0) != 0) {
      return Err().find(text) != std::string::npos;
    }
    poll(nullptr, 0, kPollMs);
  }
  return true;
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::error_code ended;
  std::filesystem::directory_iterator tasks("/proc/" + std::to_string(parent) + "/task", ended);
  for (; !ended && tasks != std::filesystem::directory_iterator(); tasks.increment(ended)) {
    std::ifstream file(tasks->path() / "children");
    pid_t child = 0;
    while (file >> child) {
      children.push_back(child);
    }
  }
  return children;
}

std::string ProgramOf(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/cmdline");
  std::string path;
  std::getline(file, path, '\0');
  return std::filesystem::path(path).filename();
}

TestFolder::TestFolder() : path_("/tmp/lastflop-test-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) {
    path_.clear();
  }
}

TestFolder::~TestFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TestFolder::Write(const std::string& name, const std::string& text) const {
  const std::string file = path_ + "/" + name;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path());
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

}  // namespace lastflop
