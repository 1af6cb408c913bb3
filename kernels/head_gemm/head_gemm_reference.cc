#include <vector>

#include "kernels/head_gemm/head_gemm.h"

namespace lastflop {

void HeadGemmReference(const HeadGemmShape& shape, WeightRows weights, std::span<const Bf16> in,
                       std::span<float> out) {
  std::vector<float> weight(static_cast<size_t>(shape.in_features));
  for (int64_t head = 0; head < shape.num_heads; ++head) {
    for (int64_t n = 0; n < shape.out_features; ++n) {
      weights(head, n, weight);
      for (int64_t t = 0; t < shape.num_tokens; ++t) {
        const int64_t row = t * shape.num_heads + head;
        float sum = 0;
        for (int64_t k = 0; k < shape.in_features; ++k) {
          sum += ToFloat(in[static_cast<size_t>(row * shape.in_stride + k)]) *
                 weight[static_cast<size_t>(k)];
        }
        out[static_cast<size_t>(row * shape.out_stride + n)] = sum;
      }
    }
  }
}

}  // namespace lastflop
