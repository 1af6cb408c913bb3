#include "db/file_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

// IsHeld() has the lock for a moment, and a coordinator whose `run` was killed for as long as it
// takes to end: whoever wants it tries again.
constexpr int kTries = 100;
constexpr int kTryMs = 20;

bool Lock(int descriptor) {
  for (int i = 0; i < kTries; ++i) {
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
      return true;
    }
    if (errno != EWOULDBLOCK || i + 1 == kTries) {
      return false;
    }
    poll(nullptr, 0, kTryMs);
  }
  return false;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Acquire(const std::string& path) {
  const std::string lock_path = path + ".lock";
  const int descriptor = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("create the lock file ", lock_path, ": ", std::strerror(errno)));
  }
  FileLock lock(descriptor);
  char holder[32] = {};
  if (!Lock(descriptor)) {
    if (errno != EWOULDBLOCK) {
      return absl::FailedPreconditionError(
          absl::StrCat("lock ", lock_path, ": ", std::strerror(errno)));
    }
    const ssize_t size = pread(descriptor, holder, sizeof(holder) - 1, 0);
    return absl::FailedPreconditionError(absl::StrCat(
        "another coordinator", size > 0 ? " (process " : "", absl::StripAsciiWhitespace(holder),
        size > 0 ? ")" : "", " has the database ", path));
  }
  const std::string own = absl::StrCat(getpid(), "\n");
  if (ftruncate(descriptor, 0) != 0 ||
      pwrite(descriptor, own.data(), own.size(), 0) != static_cast<ssize_t>(own.size())) {
    return absl::FailedPreconditionError(
        absl::StrCat("write ", lock_path, ": ", std::strerror(errno)));
  }
  return lock;
}

bool FileLock::IsHeld(const std::string& path) {
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(path, error);
  const std::string lock_path = (error ? path : resolved.string()) + ".lock";
  const int descriptor = open(lock_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return errno != ENOENT;  // Without the file no coordinator has begun.
  }
  const FileLock lock(descriptor);
  return flock(descriptor, LOCK_SH | LOCK_NB) != 0;
}

void FileLock::CloseFile::operator()(const int* descriptor) const {
  close(*descriptor);
  delete descriptor;
}

}  // namespace lastflop
