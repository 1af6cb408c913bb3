#include <vector>

#include "kernels/grouped_gemm/grouped_gemm.h"

namespace lastflop {

void GroupedGemmReference(const ExpertGemmShape& shape, const PairList& pairs, WeightRows weights,
                          std::span<const Bf16> in, std::span<const int64_t> out_features,
                          std::span<float> out) {
  const auto in_features = static_cast<size_t>(shape.in_features);
  const int64_t num_out =
      out_features.empty() ? shape.out_features : static_cast<int64_t>(out_features.size());
  std::vector<float> weight(in_features);
  for (int64_t expert = 0; expert < shape.num_local_experts; ++expert) {
    const int32_t begin = pairs.offsets[static_cast<size_t>(expert)];
    const int32_t end = pairs.offsets[static_cast<size_t>(expert + 1)];
    for (int64_t j = 0; begin < end && j < num_out; ++j) {
      weights(expert, out_features.empty() ? j : out_features[static_cast<size_t>(j)], weight);
      for (int32_t p = begin; p < end; ++p) {
        const auto pair = static_cast<size_t>(p);
        const auto row = static_cast<size_t>(shape.gather_tokens ? pairs.token[pair] : p);
        float sum = 0;
        for (size_t k = 0; k < in_features; ++k) {
          sum += ToFloat(in[row * in_features + k]) * weight[k];
        }
        out[pair * static_cast<size_t>(num_out) + static_cast<size_t>(j)] = sum;
      }
    }
  }
}

}  // namespace lastflop
