#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/attention/kv_cache.h"
#include "kernels/cpu/thread_pool.h"
#include "step/shapes.h"
#include "worker/cpu_buffer_store.h"
#include "worker/cpu_weights.h"

namespace lastflop {

// The cache of one layer on one rank, shared between arms, with the random context of
// kernels/attention/kv_cache.h. Steps write the places after the context only.
class CpuKvCache {
 public:
  static absl::StatusOr<CpuKvCache> Load(const AttentionShape& shape, const KvSlice& slice,
                                         int layer, const WeightData& data, CpuBufferStore& store,
                                         ThreadPool& pool);

  // Zeroed memory for a cache of this shape, shared by all layers: of a mirror.
  static absl::StatusOr<CpuKvCache> Empty(const AttentionShape& shape, CpuBufferStore& store);

  KvCache view() const;

 private:
  CpuKvCache(CpuBufferStore::Shared buffer, size_t key_bytes)
      : buffer_(std::move(buffer)), key_bytes_(key_bytes) {}

  CpuBufferStore::Shared buffer_;
  size_t key_bytes_;
};

}  // namespace lastflop
