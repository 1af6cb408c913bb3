#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/fp8.h"
#include "kernels/grouped_gemm/grouped_gemm.h"

namespace lastflop {

void GroupedGemmReference(const ExpertGemmShape& shape, const PairList& pairs, WeightRows weights,
                          std::span<const Bf16> in, std::span<const int64_t> out_columns,
                          std::span<float> out) {
  const auto in_features = static_cast<size_t>(shape.in_features);
  const int64_t num_out =
      out_columns.empty() ? shape.out_columns() : static_cast<int64_t>(out_columns.size());
  std::vector<float> weight(in_features);
  std::vector<float> up_weight(shape.swiglu ? in_features : 0);
  std::vector<float> values(in_features);
  const auto sum_of = [&](size_t row, const std::vector<float>& weight_row) {
    const std::span<const Bf16> in_row = in.subspan(row * in_features, in_features);
    std::transform(in_row.begin(), in_row.end(), values.begin(),
                   [](Bf16 value) { return ToFloat(value); });
    if (shape.activations == ActivationFormat::kFp8) {
      RoundRowToFp8(values);
    }
    float sum = 0;
    for (size_t k = 0; k < in_features; ++k) {
      sum += values[k] * weight_row[k];
    }
    return sum;
  };
  for (int64_t expert = 0; expert < shape.num_local_experts; ++expert) {
    const int32_t begin = pairs.offsets[static_cast<size_t>(expert)];
    const int32_t end = pairs.offsets[static_cast<size_t>(expert + 1)];
    for (int64_t j = 0; begin < end && j < num_out; ++j) {
      const int64_t column = out_columns.empty() ? j : out_columns[static_cast<size_t>(j)];
      weights(expert, column, weight);
      if (shape.swiglu) {
        weights(expert, shape.out_columns() + column, up_weight);
      }
      for (int32_t p = begin; p < end; ++p) {
        const auto pair = static_cast<size_t>(p);
        const auto row = static_cast<size_t>(shape.gather_tokens ? pairs.token[pair] : p);
        float value = sum_of(row, weight);
        if (shape.swiglu) {
          value = value / (1.0f + std::exp(-value)) * sum_of(row, up_weight);
        }
        out[pair * static_cast<size_t>(num_out) + static_cast<size_t>(j)] = value;
      }
    }
  }
}

}  // namespace lastflop
