#include <vector>

#include "kernels/gemm/gemm.h"

namespace lastflop {

void GemmReference(const GemmShape& shape, WeightRows weights, std::span<const Bf16> in,
                   std::span<const Bf16> bias, std::span<const int64_t> out_features,
                   std::span<float> out) {
  const int64_t stride = shape.in_stride > 0 ? shape.in_stride : shape.in_features;
  const int64_t num_out =
      out_features.empty() ? shape.out_features : static_cast<int64_t>(out_features.size());
  std::vector<float> weight(static_cast<size_t>(shape.in_features));
  for (int64_t i = 0; i < num_out; ++i) {
    const int64_t n = out_features.empty() ? i : out_features[static_cast<size_t>(i)];
    weights(0, n, weight);
    for (int64_t t = 0; t < shape.num_tokens; ++t) {
      const Bf16* const row = in.data() + shape.in_offset + t * stride;
      float sum = shape.bias ? ToFloat(bias[static_cast<size_t>(n)]) : 0.0f;
      for (int64_t k = 0; k < shape.in_features; ++k) {
        sum += ToFloat(row[k]) * weight[static_cast<size_t>(k)];
      }
      out[static_cast<size_t>(t * num_out + i)] = sum;
    }
  }
}

}  // namespace lastflop
