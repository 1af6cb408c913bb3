#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/kernel.h"
#include "kernels/permute/permute.h"
#include "step/shapes.h"

// Dequant: the weights of the experts that have pairs, from int4 to bf16, in a pass of its own
// (moe.dequant: separate). Other experts' place in the buffer keeps what it held.
//
//   out[e, n, k] = bf16(value[e, n, k] * scale[e, n, k / group_size])
//
// The product of a 4-bit value and a bf16 scale has up to 11 significant bits, so this rounds where
// the fused way does not.
namespace lastflop {

// Unimplemented or InvalidArgument for weights that are not quantized or not this backend's.
absl::Status ValidateDequant(const DequantShape& shape);

// The weights of one output feature after the pass: [in_features].
void DequantReference(const DequantShape& shape, WeightRows weights, int64_t expert, int64_t row,
                      std::span<float> out);

// Writes matrices of `out_layout` (bf16; parts, rows and cols as `weights`) at `out`, which has
// out_layout.bytes().
void Dequant(const DequantShape& shape, const PairList& pairs, const PackedWeights& weights,
             const PackedLayout& out_layout, std::byte* out, ThreadPool& pool);

}  // namespace lastflop
