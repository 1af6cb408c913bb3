#include "worker/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/one_line.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kPoll{5};

std::string FileOf(const std::string& device, const std::string& folder) {
  return absl::StrCat(folder, "/", absl::StrReplaceAll(device, {{":", "-"}, {"/", "-"}}), ".lock");
}

// "pid 42 (program)"; "" of a process that has ended.
std::string Describe(int64_t pid) {
  std::ifstream in(absl::StrCat("/proc/", pid, "/comm"));
  std::string program;
  if (pid <= 0 || !std::getline(in, program)) {
    return "";
  }
  // Any bytes, which no message to a coordinator may have.
  return absl::StrCat("pid ", pid, " (", OneLine(program), ")");
}

// The holder that the kernel lists for the file with this inode; "" where it lists none, as for a
// process outside this container. Two files of one inode number on two file systems are rare and
// would only spoil a message.
std::string ListedHolder(ino_t inode) {
  std::ifstream in("/proc/locks");
  std::string line;
  const std::string file = absl::StrCat(":", inode);
  while (std::getline(in, line)) {
    // "1: FLOCK  ADVISORY  WRITE 4242 08:01:131090 0 EOF"; a waiting one has "->" after the number.
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t pid = 0;
    if (words.size() >= 6 && words[1] == "FLOCK" && absl::EndsWith(words[5], file) &&
        absl::SimpleAtoi(words[4], &pid)) {
      return Describe(pid);
    }
  }
  return "";
}

// The holder that left its pid in the file.
std::string NotedHolder(int fd) {
  char text[32] = {};
  int64_t pid = 0;
  if (pread(fd, text, sizeof(text) - 1, 0) <= 0 ||
      !absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &pid)) {
    return "";
  }
  return Describe(pid);
}

// Only a message depends on it; a full disk must not cost the lock.
void Note(int fd, absl::string_view text) {
  if (ftruncate(fd, 0) == 0 && !text.empty()) {
    [[maybe_unused]] const ssize_t written = pwrite(fd, text.data(), text.size(), 0);
  }
}

// Opens or makes a file that every user may lock. Another user's is opened and never made anew,
// which a sticky folder refuses (fs.protected_regular); reading is enough to lock it. Negative:
// errno says why.
int OpenForAll(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW;
  int fd = open(path.c_str(), O_RDWR | kFlags);
  if (fd < 0 && errno == EACCES) {
    return open(path.c_str(), O_RDONLY | kFlags);
  }
  if (fd >= 0 || errno != ENOENT) {
    return fd;
  }
  fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, 0666);
  if (fd < 0 && errno == EEXIST) {
    return open(path.c_str(), O_RDONLY | kFlags);  // Another process was first.
  }
  if (fd >= 0) {
    fchmod(fd, 0666);  // Whatever the umask.
  }
  return fd;
}

}  // namespace

std::string LockFolder() {
  std::string folder = "/tmp/lastflop-locks";
  if (mkdir(folder.c_str(), 01777) == 0) {
    chmod(folder.c_str(), 01777);
  }
  return folder;
}

std::string DeviceLock::PathFor(const std::string& device) { return FileOf(device, LockFolder()); }

absl::StatusOr<DeviceLock> DeviceLock::Open(const std::string& device, const std::string& folder) {
  const std::string path = FileOf(device, folder);
  const int fd = OpenForAll(path);
  if (fd < 0) {
    return absl::InternalError(
        absl::StrCat("opening the device lock ", path, ": ", std::strerror(errno)));
  }
  return DeviceLock(fd, path);
}

absl::StatusOr<DeviceLock> DeviceLock::Acquire(const std::string& device,
                                               std::chrono::milliseconds timeout) {
  LASTFLOP_ASSIGN_OR_RETURN(DeviceLock lock, Open(device, LockFolder()));
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool is_held, lock.Try(LockMode::kExclusive));
    if (is_held) {
      return lock;
    }
    if (std::chrono::steady_clock::now() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("device ", device, " is still held by ",
                                                      lock.Holder(), " after ", timeout.count(),
                                                      " ms"));
    }
    // flock has no timed form; polling keeps the wait bounded without a signal.
    std::this_thread::sleep_for(kPoll);
  }
}

absl::StatusOr<bool> DeviceLock::Try(LockMode mode) {
  if (flock(fd_, (mode == LockMode::kShared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) {
    is_held_ = true;
    Note(fd_, absl::StrCat(getpid(), "\n"));
    return true;
  }
  if (errno == EWOULDBLOCK || errno == EINTR) {
    return false;
  }
  return absl::InternalError(absl::StrCat("locking ", path_, ": ", std::strerror(errno)));
}

std::string DeviceLock::Holder() const {
  struct stat file = {};
  std::string holder = fstat(fd_, &file) == 0 ? ListedHolder(file.st_ino) : "";
  if (holder.empty()) {
    holder = NotedHolder(fd_);
  }
  return holder.empty() ? absl::StrCat("another process (of ", path_, ")") : holder;
}

DeviceLock::DeviceLock(DeviceLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      is_held_(std::exchange(other.is_held_, false)),
      path_(std::move(other.path_)) {}

DeviceLock& DeviceLock::operator=(DeviceLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(is_held_, other.is_held_);
  std::swap(path_, other.path_);
  return *this;
}

DeviceLock::~DeviceLock() {
  if (fd_ < 0) {
    return;
  }
  // The next holder may be one that leaves no note.
  if (is_held_) {
    Note(fd_, "");
  }
  close(fd_);
}

}  // namespace lastflop
