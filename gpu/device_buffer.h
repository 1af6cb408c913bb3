#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lastflop {

// Memory of the current device, 256-byte aligned. Move-only; freed with the last holder, which
// waits for the device.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;

  // ResourceExhausted when the device has no more. 0 bytes is valid and has no memory.
  static absl::StatusOr<DeviceBuffer> Create(size_t bytes);

  std::byte* data() const { return data_.get(); }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* As(size_t byte_offset = 0) const {
    return reinterpret_cast<T*>(data_.get() + byte_offset);
  }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t bytes_ = 0;
};

}  // namespace lastflop
