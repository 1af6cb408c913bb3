#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kernel.h"
#include "step/shapes.h"

// Head GEMM: MLA's absorbed products, one small matrix a head.
//
//   out[t, head, n] = sum_k in[t, head, k] * weight[head, n, k]
//
// `in` is [num_tokens, num_heads, in_stride], `out` is [num_tokens, num_heads, out_stride]; what
// lies between out_features and out_stride is left as it is. Weights are num_heads packed matrices
// in bf16.
namespace lastflop {

// InvalidArgument for sizes out of range.
absl::Status ValidateHeadGemm(const HeadGemmShape& shape);

// Plain loops in fp32. `out` is as the kernel's; other elements of it are left as they are.
void HeadGemmReference(const HeadGemmShape& shape, WeightRows weights, std::span<const Bf16> in,
                       std::span<float> out);

void HeadGemm(const HeadGemmShape& shape, const PackedWeights& weights, std::span<const Bf16> in,
              std::span<Bf16> out, ThreadPool& pool);

}  // namespace lastflop
