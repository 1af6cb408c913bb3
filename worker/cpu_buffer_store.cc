#include "worker/cpu_buffer_store.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;

}  // namespace

absl::StatusOr<CpuBufferStore::Shared> CpuBufferStore::Get(
    const std::string& key, size_t bytes, absl::FunctionRef<void(AlignedBuffer& buffer)> fill) {
  if (const auto found = entries_.find(key); found != entries_.end()) {
    found->second.last_use = ++num_uses_;
    return found->second.buffer;
  }
  if (!MakeRoom(static_cast<double>(bytes))) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s needs %.2f GiB: %.2f GiB are in use of the %.2f GiB that this rank may take", key,
        static_cast<double>(bytes) / kBytesPerGib, bytes_held_ / kBytesPerGib,
        byte_budget_ / kBytesPerGib));
  }
  LASTFLOP_ASSIGN_OR_RETURN(AlignedBuffer buffer, AlignedBuffer::Create(bytes));
  auto shared = std::make_shared<AlignedBuffer>(std::move(buffer));
  fill(*shared);
  bytes_held_ += static_cast<double>(bytes);
  entries_[key] = {.buffer = shared, .last_use = ++num_uses_};
  return shared;
}

bool CpuBufferStore::MakeRoom(double bytes) {
  while (bytes_held_ + bytes > byte_budget_) {
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

}  // namespace lastflop
