#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace lastflop {

// Several hold a shared lock at a time, one an exclusive one.
enum class LockMode { kShared, kExclusive };

// Where the lock files of this host are, for all its users; made when it is not there.
std::string LockFolder();

// A hold of one device of this host among all processes, also those of another user or of a stopped
// worker. Released when the object or its process ends, however it ends. Move-only.
class DeviceLock {
 public:
  // Opens the file of `device` ("cpu:0", "cuda:1") in `folder` without locking it.
  static absl::StatusOr<DeviceLock> Open(const std::string& device, const std::string& folder);

  // Opens and waits until the lock is free or `timeout` has passed: DeadlineExceeded names the
  // holder.
  static absl::StatusOr<DeviceLock> Acquire(const std::string& device,
                                            std::chrono::milliseconds timeout);

  // The file that is locked for `device`.
  static std::string PathFor(const std::string& device);

  // Takes the lock if it is free now: false when it is not.
  absl::StatusOr<bool> Try(LockMode mode);

  // Whether this object has it, by a Try() or Acquire().
  bool is_held() const { return is_held_; }

  // Who has it, as far as the host tells: "pid 42 (lastflop-worker)", else "another process".
  std::string Holder() const;

  DeviceLock(DeviceLock&& other) noexcept;
  DeviceLock& operator=(DeviceLock&& other) noexcept;
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
  ~DeviceLock();

 private:
  DeviceLock(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  bool is_held_ = false;
  std::string path_;
};

}  // namespace lastflop
