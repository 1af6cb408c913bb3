#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/attention/kv_cache.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "step/shapes.h"

// Rotary embedding of the new tokens, and the write of their keys and values into the cache.
//
// A vector x of rotary_dim elements at position p turns in pairs (i, i + rotary_dim / 2):
//
//   x'[i] = x[i] cos(a) - x[i + half] sin(a),  x'[i + half] = x[i + half] cos(a) + x[i] sin(a)
//   a = p * theta^(-2 i / rotary_dim)
//
// Checkpoints that pair neighbouring elements differ from this by a fixed permutation of weight
// rows. The position of a token is context + its index among the sequence's new tokens.
namespace lastflop {

// Cosines and sines of the positions of a shape: [query_tokens, rotary_dim / 2] each. Made once for
// a plan at a point.
class RopeTable {
 public:
  explicit RopeTable(const RopeShape& shape);
  const float* cosines(int64_t token) const { return cosines_.data() + token * half_; }
  const float* sines(int64_t token) const { return sines_.data() + token * half_; }

 private:
  int64_t half_ = 0;
  std::vector<float> cosines_;
  std::vector<float> sines_;
};

// InvalidArgument: sizes out of range, a rotary_dim that is odd or wider than what it turns.
absl::Status ValidateRope(const RopeShape& shape);

// The attention op that reads the cache that this shape writes.
AttentionShape AttentionOf(const RopeShape& shape);

// gqa: turns the first rotary_dim elements of every query head of `qkv` [num_tokens, (num_heads +
// 2 * num_kv_heads) * head_dim] in place; writes turned keys and values of the new tokens to the
// cache. Keys in `qkv` are turned in place too.
void RopeGqaReference(const RopeShape& shape, std::span<float> qkv, const KvCache& cache);
void RopeGqa(const RopeShape& shape, const RopeTable& table, std::span<Bf16> qkv,
             const KvCache& cache, ThreadPool& pool);

// mla: turns the last qk_rope_head_dim elements of every head of `query` [num_tokens, num_heads,
// qk_nope_head_dim + qk_rope_head_dim] into the tail of `absorbed` [num_tokens, num_heads,
// kv_lora_rank + qk_rope_head_dim]; writes the last kv_lora_rank + qk_rope_head_dim elements of
// each row of `latents`, the rope part turned, to the cache. `latents` has num_tokens rows.
void RopeMlaReference(const RopeShape& shape, std::span<const Bf16> query,
                      std::span<const Bf16> latents, std::span<float> absorbed,
                      const KvCache& cache);
void RopeMla(const RopeShape& shape, const RopeTable& table, std::span<const Bf16> query,
             std::span<const Bf16> latents, std::span<Bf16> absorbed, const KvCache& cache,
             ThreadPool& pool);

}  // namespace lastflop
