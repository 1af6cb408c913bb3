#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/random.h"
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

// Which part of the deployment's cache a rank holds.
struct KvSlice {
  int64_t first_sequence = 0;
  int64_t first_kv_head = 0;
  int64_t num_kv_heads_full = 1;  // Of the model; 1 for mla.
};

// The context that a rank's steps attend to is random data that depends on sequence, position, head
// and element of the model alone, so that every slicing and every backend has the same one: uniform
// in [-1, 1), four 16-bit values a draw, the draws of a row (a KV head's at a position, or a
// latent) one after another. A layer's stream is one of these plus its number.
inline constexpr uint64_t kContextKeyStream = 0x6B657973ULL << 16U;
inline constexpr uint64_t kContextValueStream = 0x76616C73ULL << 16U;

// The row of `head` (of the slice) at `position` of `sequence` (of the slice).
LASTFLOP_HOST_DEVICE constexpr int64_t ContextRow(const KvSlice& slice, int64_t sequence,
                                                  int64_t position, int64_t head) {
  constexpr int64_t kPositionsPerSequence = int64_t{1} << 24;  // More than any context.
  return ((slice.first_sequence + sequence) * kPositionsPerSequence + position) *
             slice.num_kv_heads_full +
         slice.first_kv_head + head;
}

// Value `j` (0 to 3) of a draw.
LASTFLOP_HOST_DEVICE constexpr float ContextValue(uint64_t bits, int j) {
  const auto centered = static_cast<int32_t>((bits >> (16 * j)) & 0xFFFFU) - 32768;
  return static_cast<float>(centered) * 0x1.0p-15F;
}

// Writes random keys and values of the context [0, shape.context) of every sequence: uniform in
// [-1, 1), from (seed, stream) and the place in the cache alone. The places of new tokens are left
// as they are.
class ThreadPool;
void FillRandomCache(const AttentionShape& shape, uint64_t seed, uint64_t stream,
                     const KvCache& cache, ThreadPool& pool);

}  // namespace lastflop
