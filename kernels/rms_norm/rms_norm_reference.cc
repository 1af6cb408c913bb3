#include <algorithm>
#include <cmath>

#include "kernels/rms_norm/rms_norm.h"

namespace lastflop {
namespace {

float InverseRms(const float* values, int64_t size, double epsilon) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) {
    sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  return static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(size) + epsilon));
}

}  // namespace

void RmsNormReference(const NormShape& shape, std::span<const Bf16> in, std::span<float> residual,
                      std::span<const Bf16> gain, std::span<float> out) {
  for (int64_t t = 0; t < shape.rows; ++t) {
    float* const row = residual.data() + t * shape.size;
    for (int64_t i = 0; i < shape.size; ++i) {
      const float value = ToFloat(in[static_cast<size_t>(t * shape.size + i)]);
      row[i] = RoundToBf16(shape.add_residual ? row[i] + value : value);
    }
    const float scale = InverseRms(row, shape.size, shape.epsilon);
    for (int64_t i = 0; i < shape.size; ++i) {
      out[static_cast<size_t>(t * shape.size + i)] =
          row[i] * scale * ToFloat(gain[static_cast<size_t>(i)]);
    }
  }
}

void RmsNormPartsReference(const NormShape& shape, std::span<const Bf16> data,
                           std::span<const Bf16> gain, std::span<float> out) {
  std::transform(data.begin(), data.end(), out.begin(), [](Bf16 value) { return ToFloat(value); });
  for (int64_t t = 0; t < shape.rows; ++t) {
    for (int64_t part = 0; part < shape.parts; ++part) {
      float* const values = out.data() + t * shape.stride + shape.offset + part * shape.size;
      const float scale = InverseRms(values, shape.size, shape.epsilon);
      for (int64_t i = 0; i < shape.size; ++i) {
        values[i] *= scale * ToFloat(gain[static_cast<size_t>(i)]);
      }
    }
  }
}

}  // namespace lastflop
