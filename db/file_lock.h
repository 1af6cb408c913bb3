#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace lastflop {

// The right to be the only coordinator of a database file, held through `path`.lock until the
// object or its process ends. The lock file holds the process id and stays behind.
class FileLock {
 public:
  // `path` is one of ResolveDatabaseFile(). FailedPrecondition names the process that holds the
  // lock.
  static absl::StatusOr<FileLock> Acquire(const std::string& path);

  // Whether somebody holds the lock of `path` now; true where that cannot be known.
  static bool IsHeld(const std::string& path);

 private:
  struct CloseFile {
    void operator()(const int* descriptor) const;
  };
  explicit FileLock(int descriptor) : descriptor_(new int(descriptor)) {}

  std::unique_ptr<int, CloseFile> descriptor_;
};

}  // namespace lastflop
