#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/attention/kv_cache.h"
#include "kernels/cpu/thread_pool.h"
#include "step/shapes.h"
#include "worker/cpu_buffer_store.h"
#include "worker/cpu_weights.h"

namespace lastflop {

// Which part of the deployment's cache a rank holds.
struct KvSlice {
  int64_t first_sequence = 0;
  int64_t first_kv_head = 0;
  int64_t num_kv_heads_full = 1;  // Of the model; 1 for mla.
};

// The cache of one layer on one rank, shared between arms: the context is random data that depends
// on sequence, position, head and element of the model alone, so that every slicing attends to the
// same context. Steps write the places after the context only.
class CpuKvCache {
 public:
  static absl::StatusOr<CpuKvCache> Load(const AttentionShape& shape, const KvSlice& slice,
                                         int layer, const WeightData& data, CpuBufferStore& store,
                                         ThreadPool& pool);

  KvCache view() const;

 private:
  CpuKvCache(CpuBufferStore::Shared buffer, size_t key_bytes)
      : buffer_(std::move(buffer)), key_bytes_(key_bytes) {}

  CpuBufferStore::Shared buffer_;
  size_t key_bytes_;
};

}  // namespace lastflop
