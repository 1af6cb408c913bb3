#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention/kv_cache.h"
#include "step/shapes.h"

namespace lastflop {

// The cache of one layer on one rank in device memory, laid out as KvCache says (CacheElements(
// shape) elements each of CacheElementBytes(shape.cache)), 16-byte aligned. mla: `values` is null.
struct DeviceKvCache {
  void* keys = nullptr;
  void* values = nullptr;
};

// Enqueues the write of random keys and values of the context [0, shape.context) of every
// sequence: the values of ContextValue() (kernels/attention/kv_cache.h), bit by bit those of the
// CPU backend's cache. The places of new tokens are left as they are: poison or zero them before.
absl::Status LaunchFillRandomCache(const AttentionShape& shape, const KvSlice& slice, int layer,
                                   uint64_t seed, const DeviceKvCache& cache, cudaStream_t stream);

}  // namespace lastflop
