#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/permute/permute.h"
#include "step/shapes.h"

// Combine: a token's experts summed by their router weights, plus the shared expert's output.
//
//   out[t, h] = sum over k with a pair p on this rank of weight[p] * in[p, h]  (+ shared[t, h])
//
// `in` is [pairs, hidden_size]; `shared` and `out` are [num_tokens, hidden_size]; all row-major
// bf16. A token without a pair on this rank gets zeros (or the shared output).
namespace lastflop {

// Plain loops in fp32. `shared` is empty unless the shape adds it.
void MoeCombineReference(const CombineShape& shape, const PairList& pairs, std::span<const Bf16> in,
                         std::span<const Bf16> shared, std::span<float> out);

void MoeCombine(const CombineShape& shape, const PairList& pairs, std::span<const Bf16> in,
                std::span<const Bf16> shared, std::span<Bf16> out, ThreadPool& pool);

}  // namespace lastflop
