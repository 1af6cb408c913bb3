#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "common/units.h"

namespace lastflop {

// Weights and KV caches of one child process, by what they hold. Both arms of a pair, and the
// trials of a launch one after the other, use the same memory where format and slice are equal.
// What no arm uses is kept until its room is needed, the least recently asked for going first.
// `Buffer` has Create(bytes) and bytes(). Not thread-safe.
template <typename Buffer>
class BufferStore {
 public:
  // Shared between the arms that use it and the store, which drops it when no arm does.
  using Shared = std::shared_ptr<Buffer>;

  explicit BufferStore(double byte_budget) : byte_budget_(byte_budget) {}

  // The buffer called `key`, made and filled when the store has not got it. Equal keys have equal
  // contents. ResourceExhausted when what is in use leaves no room for `bytes`; an error of `fill`
  // is returned and nothing kept.
  absl::StatusOr<Shared> Get(const std::string& key, size_t bytes,
                             absl::FunctionRef<absl::Status(Buffer& buffer)> fill) {
    if (const auto found = entries_.find(key); found != entries_.end()) {
      found->second.last_use = ++num_uses_;
      return found->second.buffer;
    }
    if (!MakeRoom(static_cast<double>(bytes))) {
      return absl::ResourceExhaustedError(absl::StrFormat(
          "%s needs %.2f GiB: %.2f GiB are in use of the %.2f GiB that this rank may take", key,
          static_cast<double>(bytes) / kBytesPerGib, (bytes_held_ + reserved_bytes_) / kBytesPerGib,
          byte_budget_ / kBytesPerGib));
    }
    LASTFLOP_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Create(bytes));
    auto shared = std::make_shared<Buffer>(std::move(buffer));
    LASTFLOP_RETURN_IF_ERROR(fill(*shared));
    bytes_held_ += static_cast<double>(bytes);
    entries_[key] = {.buffer = shared, .last_use = ++num_uses_};
    return shared;
  }

  double bytes_held() const { return bytes_held_; }

  // Leaves so many bytes of the budget to what is allocated beside the store, instead of what was
  // left before; drops unused buffers for them. False when those in use leave less.
  bool Reserve(double bytes) {
    reserved_bytes_ = bytes;
    return MakeRoom(0);
  }

 private:
  struct Entry {
    Shared buffer;
    uint64_t last_use = 0;
  };

  // Drops unused buffers until `bytes` more fit into the budget; false when they do not.
  bool MakeRoom(double bytes) {
    while (bytes_held_ + reserved_bytes_ + bytes > byte_budget_) {
      auto oldest = entries_.end();
      for (auto it = entries_.begin(); it != entries_.end(); ++it) {
        const bool is_unused = it->second.buffer.use_count() == 1;
        if (is_unused &&
            (oldest == entries_.end() || it->second.last_use < oldest->second.last_use)) {
          oldest = it;
        }
      }
      if (oldest == entries_.end()) {
        return false;
      }
      bytes_held_ -= static_cast<double>(oldest->second.buffer->bytes());
      entries_.erase(oldest);
    }
    return true;
  }

  const double byte_budget_;
  double bytes_held_ = 0;
  double reserved_bytes_ = 0;
  uint64_t num_uses_ = 0;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace lastflop
