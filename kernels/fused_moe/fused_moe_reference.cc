#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/fused_moe/fused_moe.h"

namespace lastflop {
namespace {

// values[n] = sum_k in[k] * weights[expert, n, k].
void Multiply(WeightRows weights, int64_t expert, std::span<const float> in,
              std::span<float> values) {
  std::vector<float> weight(in.size());
  for (size_t n = 0; n < values.size(); ++n) {
    weights(expert, static_cast<int64_t>(n), weight);
    float sum = 0;
    for (size_t k = 0; k < in.size(); ++k) {
      sum += in[k] * weight[k];
    }
    values[n] = sum;
  }
}

// The local expert of pair p.
int64_t ExpertOf(const PairList& pairs, int32_t p) {
  return std::upper_bound(pairs.offsets.begin(), pairs.offsets.end(), p) - pairs.offsets.begin() -
         1;
}

}  // namespace

void FusedMoeReference(const FusedMoeShape& shape, const PairList& pairs, WeightRows gate_up,
                       WeightRows down, std::span<const Bf16> in, std::span<const Bf16> shared,
                       std::span<const int64_t> tokens, std::span<float> out) {
  const auto hidden = static_cast<size_t>(shape.hidden_size);
  const auto intermediate = static_cast<size_t>(shape.moe_intermediate_size);
  const auto top_k = static_cast<size_t>(shape.top_k);
  std::vector<float> row(hidden), g(2 * intermediate), act(intermediate), expert_out(hidden);
  const size_t num_rows = tokens.empty() ? static_cast<size_t>(shape.num_tokens) : tokens.size();
  for (size_t i = 0; i < num_rows; ++i) {
    const size_t t = tokens.empty() ? i : static_cast<size_t>(tokens[i]);
    const std::span<float> sum = out.subspan(i * hidden, hidden);
    for (size_t h = 0; h < hidden; ++h) {
      row[h] = ToFloat(in[t * hidden + h]);
      sum[h] = shape.add_shared ? ToFloat(shared[t * hidden + h]) : 0.0f;
    }
    for (size_t k = 0; k < top_k; ++k) {
      const int32_t pair = pairs.pair_of[t * top_k + k];
      if (pair < 0) {
        continue;
      }
      const int64_t expert = ExpertOf(pairs, pair);
      Multiply(gate_up, expert, row, g);
      for (size_t f = 0; f < intermediate; ++f) {
        act[f] = g[f] / (1.0f + std::exp(-g[f])) * g[intermediate + f];
      }
      Multiply(down, expert, act, expert_out);
      for (size_t h = 0; h < hidden; ++h) {
        sum[h] += pairs.weight[static_cast<size_t>(pair)] * expert_out[h];
      }
    }
  }
}

}  // namespace lastflop
