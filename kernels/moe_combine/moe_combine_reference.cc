#include "kernels/moe_combine/moe_combine.h"

namespace lastflop {

void MoeCombineReference(const CombineShape& shape, const PairList& pairs, std::span<const Bf16> in,
                         std::span<const Bf16> shared, std::span<float> out) {
  const auto hidden = static_cast<size_t>(shape.hidden_size);
  const auto top_k = static_cast<size_t>(shape.top_k);
  for (size_t t = 0; t < static_cast<size_t>(shape.num_tokens); ++t) {
    for (size_t h = 0; h < hidden; ++h) {
      float sum = shape.add_shared ? ToFloat(shared[t * hidden + h]) : 0.0f;
      for (size_t k = 0; k < top_k; ++k) {
        const int32_t pair = pairs.pair_of[t * top_k + k];
        if (pair >= 0) {
          const auto p = static_cast<size_t>(pair);
          sum += pairs.weight[p] * ToFloat(in[p * hidden + h]);
        }
      }
      out[t * hidden + h] = sum;
    }
  }
}

}  // namespace lastflop
