#pragma once

#include <span>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/permute/permute.h"
#include "step/shapes.h"

// moe.kernel: reference. The plain loops of the expert kernels on one thread, with weights as they
// lie in memory and results rounded to bf16 as between kernels.
namespace lastflop {

void ReferenceExpertGemm(const ExpertGemmShape& shape, const PairList& pairs,
                         const PackedWeights& weights, std::span<const Bf16> in,
                         std::span<Bf16> out);

void ReferenceSwiglu(const ActivationShape& shape, const PairList& pairs, std::span<const Bf16> in,
                     std::span<Bf16> out);

void ReferenceCombine(const CombineShape& shape, const PairList& pairs, std::span<const Bf16> in,
                      std::span<const Bf16> shared, std::span<Bf16> out);

}  // namespace lastflop
