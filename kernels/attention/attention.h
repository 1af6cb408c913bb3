#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/attention/kv_cache.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "step/shapes.h"

// Attention of new tokens over the cache and themselves. With d the width of a key:
//
//   p[t, h, s] = softmax over s of softmax_scale * sum_d query[t, h, d] * key[s, h', d]
//   out[t, h, v] = sum_s p[t, h, s] * value[s, h', v]
//
// where h' = h / (num_heads / num_kv_heads) and s runs over the token's own sequence, up to and
// with its own position: context + its index among the sequence's new tokens.
//
// gqa: the query is the first num_heads * head_dim elements of each row of a [num_tokens,
// (num_heads + 2 * num_kv_heads) * head_dim] tensor; out is [num_tokens, num_heads, head_dim].
// mla: the query is [num_tokens, num_heads, kv_lora_rank + qk_rope_head_dim], absorbed; out is
// [num_tokens, num_heads, kv_lora_rank]. num_tokens is num_sequences * query_tokens, by sequence.
//
// Query heads of a KV head share its reads. Where sequences and heads are fewer than threads want,
// the context is cut into chunks, whose partial results are merged at the end.
namespace lastflop {

// InvalidArgument: sizes out of range, heads that KV heads do not divide.
absl::Status ValidateAttention(const AttentionShape& shape);

// What Attention needs in `workspace` on a pool of `num_threads`.
int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int num_threads);

// Plain loops in fp32, without online softmax. Computes only the tokens and heads in `tokens` and
// `heads` (all where one is empty), of a sample of a batch: `out` is [tokens, heads, value width].
void AttentionReference(const AttentionShape& shape, std::span<const Bf16> query,
                        const KvCache& cache, std::span<const int64_t> tokens, std::span<float> out,
                        std::span<const int64_t> heads = {});

// The new tokens' keys and values are in the cache already. `workspace` is 64-byte aligned.
void Attention(const AttentionShape& shape, std::span<const Bf16> query, const KvCache& cache,
               std::span<Bf16> out, std::span<std::byte> workspace, ThreadPool& pool);

// Widths that follow from the shape.
struct AttentionWidths {
  int64_t key = 0;
  int64_t value = 0;
  int64_t query_stride = 0;    // Elements between tokens of `query`.
  int64_t cache_stride = 0;    // Elements between positions of the cache.
  int64_t query_offset = 0;    // Elements between heads of a token of `query`.
  int64_t kv_head_offset = 0;  // Elements between KV heads of a position.
};
AttentionWidths WidthsOf(const AttentionShape& shape);

}  // namespace lastflop
