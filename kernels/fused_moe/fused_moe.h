#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kernel.h"
#include "kernels/permute/permute.h"
#include "step/shapes.h"

// Fused MoE: gate_up, SwiGLU, down and combine in one kernel.
//
//   act[p, f]  = silu(g[p, f]) * g[p, I + f],  g[p, n] = sum_k in[token[p], k] * gate_up[e(p), n,
//   k] out[t, h]  = sum over pairs p of t of weight[p] * sum_f act[p, f] * down[e(p), h, f]
//                (+ shared[t, h])
//
// `in`, `shared` and `out` are [num_tokens, hidden_size] row-major bf16. Only act, rounded to bf16,
// passes between the two halves, through cache; neither gate_up's nor down's output is stored.
// tile_order as in grouped_gemm.h, for both halves.
namespace lastflop {

// Unimplemented: a format that the CPU backend has not got. InvalidArgument: sizes out of range.
absl::Status ValidateFusedMoe(const FusedMoeShape& shape);

// What FusedMoe needs in `workspace`. `gate_up` has two parts of moe_intermediate_size rows.
int64_t FusedMoeWorkspaceBytes(const FusedMoeShape& shape, const PackedLayout& gate_up,
                               const PackedLayout& down);

// Plain loops in fp32, without rounding in between. Computes only the rows of `out` that `tokens`
// names ([tokens.size(), hidden_size]), all when it is empty.
void FusedMoeReference(const FusedMoeShape& shape, const PairList& pairs, WeightRows gate_up,
                       WeightRows down, std::span<const Bf16> in, std::span<const Bf16> shared,
                       std::span<const int64_t> tokens, std::span<float> out);

// Runs the kernel on the pool. The shape has passed ValidateFusedMoe. `shared` is empty unless the
// shape adds it. `workspace` is 64-byte aligned.
void FusedMoe(const FusedMoeShape& shape, const PairList& pairs, const PackedWeights& gate_up,
              const PackedWeights& down, std::span<const Bf16> in, std::span<const Bf16> shared,
              std::span<Bf16> out, std::span<std::byte> workspace, ThreadPool& pool);

}  // namespace lastflop
