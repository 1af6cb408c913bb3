#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kernel.h"
#include "step/shapes.h"

// GEMM: dense projections, router scores and logits.
//
//   out[t, n] = sum_k in[in_offset + t * in_stride + k] * weight[n, k] (+ bias[n])
//
// `in` and `bias` are bf16, `out` is [num_tokens, out_features] in bf16, or fp32 when fp32_out.
// Weights are one packed matrix (kernels/cpu/packed_weights.h).
//
// A thread takes some panels of weights and multiplies all tokens with them, so that weights are
// read from memory once; tokens are taken in tiles that stay in L2 beside the panels.
namespace lastflop {

// Unimplemented: a weight format that the CPU backend has not got. InvalidArgument: sizes out of
// range.
absl::Status ValidateGemm(const GemmShape& shape);

// What Gemm needs in `workspace`.
int64_t GemmWorkspaceBytes(const GemmShape& shape, const PackedLayout& weights);

// Plain loops in fp32. Computes only the output features in `out_features` ([num_tokens,
// out_features.size()], all of them when it is empty): `out` for a sample of a large matrix.
void GemmReference(const GemmShape& shape, WeightRows weights, std::span<const Bf16> in,
                   std::span<const Bf16> bias, std::span<const int64_t> out_features,
                   std::span<float> out);

// Runs the kernel on the pool. The shape has passed ValidateGemm; `weights` holds one matrix
// [out_features, in_features] in the shape's format. `bias` is empty when the shape has none.
// `workspace` is 64-byte aligned. The first is for shapes without fp32_out, the second for those
// with it.
void Gemm(const GemmShape& shape, const PackedWeights& weights, std::span<const Bf16> in,
          std::span<const Bf16> bias, std::span<Bf16> out, std::span<std::byte> workspace,
          ThreadPool& pool);
void Gemm(const GemmShape& shape, const PackedWeights& weights, std::span<const Bf16> in,
          std::span<const Bf16> bias, std::span<float> out, std::span<std::byte> workspace,
          ThreadPool& pool);

}  // namespace lastflop
