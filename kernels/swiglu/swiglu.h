#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/permute/permute.h"
#include "step/shapes.h"

// SwiGLU: the activation between the two GEMMs of a gated FFN.
//
//   out[r, f] = silu(in[r, f]) * in[r, intermediate_size + f],  silu(x) = x / (1 + exp(-x))
//
// `in` is [rows, 2 * intermediate_size], `out` is [rows, intermediate_size]; both row-major bf16.
namespace lastflop {

// Rows to work on: the shape's, or as many as there are pairs. `pairs` may be null when the rows
// are not pairs.
int64_t SwigluRows(const ActivationShape& shape, const PairList* pairs);

// Plain loops in fp32.
void SwigluReference(const ActivationShape& shape, const PairList* pairs, std::span<const Bf16> in,
                     std::span<float> out);

void Swiglu(const ActivationShape& shape, const PairList* pairs, std::span<const Bf16> in,
            std::span<Bf16> out, ThreadPool& pool);

}  // namespace lastflop
