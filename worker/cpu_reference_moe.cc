#include "worker/cpu_reference_moe.h"

#include <algorithm>
#include <vector>

#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/moe_combine/moe_combine.h"
#include "kernels/swiglu/swiglu.h"

namespace lastflop {
namespace {

void Round(std::span<const float> values, std::span<Bf16> out) {
  std::transform(values.begin(), values.end(), out.begin(), ToBf16);
}

}  // namespace

void ReferenceExpertGemm(const ExpertGemmShape& shape, const PairList& pairs,
                         const PackedWeights& weights, std::span<const Bf16> in,
                         std::span<Bf16> out) {
  std::vector<float> result(out.size());
  GroupedGemmReference(
      shape, pairs,
      [&](int64_t matrix, int64_t row, std::span<float> values) {
        UnpackRow(weights, matrix, row, values);
      },
      in, {}, result);
  Round(result, out);
}

void ReferenceSwiglu(const ActivationShape& shape, const PairList& pairs, std::span<const Bf16> in,
                     std::span<Bf16> out) {
  std::vector<float> result(out.size());
  SwigluReference(shape, &pairs, in, result);
  Round(result, out);
}

void ReferenceCombine(const CombineShape& shape, const PairList& pairs, std::span<const Bf16> in,
                      std::span<const Bf16> shared, std::span<Bf16> out) {
  std::vector<float> result(out.size());
  MoeCombineReference(shape, pairs, in, shared, result);
  Round(result, out);
}

}  // namespace lastflop
