#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "step/shapes.h"

namespace lastflop {

// The cache of one layer on one rank, in the shape's CacheFormat (bf16, or fp8 e4m3 with scale 1):
//
//   gqa: keys and values, each [num_sequences, context + query_tokens, num_kv_heads, head_dim]
//   mla: keys [num_sequences, context + query_tokens, kv_lora_rank + qk_rope_head_dim]; values are
//        the first kv_lora_rank columns of it, and `values` is empty
struct KvCache {
  std::span<std::byte> keys;
  std::span<std::byte> values;
};

// Elements of `keys`, and for gqa as many of `values`.
int64_t CacheElements(const AttentionShape& shape);

// Bytes of an element.
int64_t CacheElementBytes(CacheFormat format);

// Writes random keys and values of the context [0, shape.context) of every sequence: uniform in
// [-1, 1), from (seed, stream) and the place in the cache alone. The places of new tokens are left
// as they are.
class ThreadPool;
void FillRandomCache(const AttentionShape& shape, uint64_t seed, uint64_t stream,
                     const KvCache& cache, ThreadPool& pool);

}  // namespace lastflop
