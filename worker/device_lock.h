#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace lastflop {

// An exclusive hold of one device of this host among all processes of this user, also those of a
// stopped worker. Released when the object or its process ends, however it ends. Move-only.
class DeviceLock {
 public:
  // Waits until the lock is free or `timeout` has passed: DeadlineExceeded names the holder's pid.
  // `device` is "cpu:0" or "cuda:1".
  static absl::StatusOr<DeviceLock> Acquire(const std::string& device,
                                            std::chrono::milliseconds timeout);

  // The file that is locked for `device`.
  static std::string PathFor(const std::string& device);

  DeviceLock(DeviceLock&& other) noexcept;
  DeviceLock& operator=(DeviceLock&& other) noexcept;
  DeviceLock(const DeviceLock&) = delete;
  DeviceLock& operator=(const DeviceLock&) = delete;
  ~DeviceLock();

 private:
  explicit DeviceLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace lastflop
