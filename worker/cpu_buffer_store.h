#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/cpu/aligned_buffer.h"

namespace lastflop {

// Weights and KV caches of one child process, by what they hold. Both arms of a pair, and the
// trials of a launch one after the other, use the same memory where format and slice are equal.
// What no arm uses is kept until its room is needed, the least recently asked for going first.
// Not thread-safe.
class CpuBufferStore {
 public:
  // Shared between the arms that use it and the store, which drops it when no arm does.
  using Shared = std::shared_ptr<AlignedBuffer>;

  explicit CpuBufferStore(double byte_budget) : byte_budget_(byte_budget) {}

  // The buffer called `key`, made and filled when the store has not got it. Equal keys have equal
  // contents. ResourceExhausted when what is in use leaves no room for `bytes`.
  absl::StatusOr<Shared> Get(const std::string& key, size_t bytes,
                             absl::FunctionRef<void(AlignedBuffer& buffer)> fill);

  double bytes_held() const { return bytes_held_; }

 private:
  struct Entry {
    Shared buffer;
    uint64_t last_use = 0;
  };

  // Drops unused buffers until `bytes` more fit into the budget; false when they do not.
  bool MakeRoom(double bytes);

  const double byte_budget_;
  double bytes_held_ = 0;
  uint64_t num_uses_ = 0;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace lastflop
