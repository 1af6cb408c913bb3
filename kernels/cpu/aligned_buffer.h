#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"

namespace lastflop {

// Zeroed memory of its own pages, 2 MiB-aligned and with huge pages asked for when large: weights,
// caches and activations of a rank. Pages are placed by the thread that first writes them.
// Move-only.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;

  // ResourceExhausted when the system gives no more. 0 bytes is valid.
  static absl::StatusOr<AlignedBuffer> Create(size_t bytes);

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  size_t bytes() const { return data_.get_deleter().bytes; }

  // The memory as `count` values of T from byte `offset` on.
  template <typename T>
  std::span<T> As(size_t count, size_t offset = 0) {
    return {reinterpret_cast<T*>(data() + offset), count};
  }

 private:
  struct Unmap {
    // No initializers: unique_ptr zeroes its deleter, and with them GCC could not construct it
    // here.
    size_t bytes;
    void* mapping;
    size_t mapping_bytes;
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Unmap> data_;
};

}  // namespace lastflop
