#include "worker/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace lastflop {
namespace {

constexpr std::chrono::milliseconds kPoll{5};

std::string ReadHolder(int fd) {
  char text[32] = {};
  const ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
  if (size <= 0) {
    return "another process";
  }
  return absl::StrCat("pid ", absl::StripAsciiWhitespace(text));
}

void WriteHolder(int fd) {
  const std::string text = absl::StrCat(getpid(), "\n");
  // Only a message depends on it; a full disk must not cost the lock.
  if (ftruncate(fd, 0) == 0) {
    [[maybe_unused]] const ssize_t written = pwrite(fd, text.data(), text.size(), 0);
  }
}

}  // namespace

std::string DeviceLock::PathFor(const std::string& device) {
  const std::string folder = absl::StrCat("/tmp/lastflop-", getuid());
  mkdir(folder.c_str(), 0700);
  return absl::StrCat(folder, "/", absl::StrReplaceAll(device, {{":", "-"}, {"/", "-"}}), ".lock");
}

absl::StatusOr<DeviceLock> DeviceLock::Acquire(const std::string& device,
                                               std::chrono::milliseconds timeout) {
  const std::string path = PathFor(device);
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) {
    return absl::InternalError(
        absl::StrCat("opening the device lock ", path, ": ", std::strerror(errno)));
  }
  DeviceLock lock(fd);
  const auto end = std::chrono::steady_clock::now() + timeout;
  // flock has no timed form; polling keeps the wait bounded without a signal.
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return absl::InternalError(absl::StrCat("locking ", path, ": ", std::strerror(errno)));
    }
    if (std::chrono::steady_clock::now() >= end) {
      return absl::DeadlineExceededError(absl::StrCat("device ", device, " is still held by ",
                                                      ReadHolder(fd), " after ", timeout.count(),
                                                      " ms"));
    }
    std::this_thread::sleep_for(kPoll);
  }
  WriteHolder(fd);
  return lock;
}

DeviceLock::DeviceLock(DeviceLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

DeviceLock& DeviceLock::operator=(DeviceLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) {
    close(fd_);
  }
}

}  // namespace lastflop
