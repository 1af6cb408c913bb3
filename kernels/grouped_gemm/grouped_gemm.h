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

// Grouped GEMM: every expert's pairs times that expert's weights.
//
//   out[p, n] = sum_k in[row(p), k] * weight[expert(p), n, k]
//
// row(p) is token[p] when gather_tokens (gate_up: `in` is [num_tokens, in_features]) and p
// otherwise (down: `in` is [pairs, in_features]). `out` is [pairs, out_features]. All row-major
// bf16.
//
// With swiglu (gate_up) the sums of gate, the first half of the output features, and of up meet
// before they are rounded: out[p, f] = silu(sum of f) * (sum of out_features / 2 + f), and `out` is
// [pairs, out_features / 2].
//
// Work is cut into tiles of some rows of an expert's pairs (m) and some panels of its output
// features (n). tile_order is the order in which threads take the tiles of an expert: row_major
// keeps the rows and walks over n, so that activations stay in cache and weights are read again for
// each m-tile; column_major keeps the weights. row_major with group_m walks over n for group_m
// m-tiles at once; 0 is 1.
namespace lastflop {

// Unimplemented: a format or activation format that the CPU backend has not got. InvalidArgument:
// sizes out of range, an odd number of features under swiglu, group_m below 0 or beside
// column_major.
absl::Status ValidateGroupedGemm(const ExpertGemmShape& shape);

// What GroupedGemm needs in `workspace`.
int64_t GroupedGemmWorkspaceBytes(const ExpertGemmShape& shape, const PackedLayout& weights);

// Plain loops in fp32; fp8 activations are rounded to e4m3 in blocks of 128 first. Computes only
// the columns of `out` in `out_columns` ([pairs,
// out_columns.size()], all of the shape's when it is empty): `out` for a sample of a large matrix.
void GroupedGemmReference(const ExpertGemmShape& shape, const PairList& pairs, WeightRows weights,
                          std::span<const Bf16> in, std::span<const int64_t> out_columns,
                          std::span<float> out);

// Runs the kernel on the pool. The shape has passed ValidateGroupedGemm and `weights` holds
// num_local_experts matrices [out_features, in_features], with swiglu of two parts. `workspace` is
// 64-byte aligned.
void GroupedGemm(const ExpertGemmShape& shape, const PairList& pairs, const PackedWeights& weights,
                 std::span<const Bf16> in, std::span<Bf16> out, std::span<std::byte> workspace,
                 ThreadPool& pool);

}  // namespace lastflop
