#include "kernels/tolerance.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace lastflop {
namespace {

// Of the rms row norm: of rows as they are, and of rows of which few columns are looked at.
constexpr double kSmallRow = 0.01;
constexpr double kSmallSampledRow = 1;

double SquaredNorm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) {
    sum += static_cast<double>(value) * static_cast<double>(value);
  }
  return sum;
}

double WorstRow(std::span<const float> out, std::span<const float> reference, int64_t row_size,
                double small_row) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (out.size() != reference.size()) {
    return kInfinity;
  }
  if (out.empty()) {
    return 0;
  }
  const auto size = static_cast<size_t>(row_size);
  const double num_rows = static_cast<double>(out.size()) / static_cast<double>(row_size);
  const double rms_norm = std::sqrt(SquaredNorm(reference) / num_rows);
  double worst = 0;
  for (size_t begin = 0; begin + size <= out.size(); begin += size) {
    double squared_error = 0;
    for (size_t i = begin; i < begin + size; ++i) {
      const double error = static_cast<double>(out[i]) - static_cast<double>(reference[i]);
      squared_error += error * error;
    }
    if (!std::isfinite(squared_error)) {
      return kInfinity;
    }
    if (squared_error == 0) {
      continue;
    }
    const double norm =
        std::max(std::sqrt(SquaredNorm(reference.subspan(begin, size))), small_row * rms_norm);
    worst = std::max(worst, norm > 0 ? std::sqrt(squared_error) / norm : kInfinity);
  }
  return worst;
}

}  // namespace

double Tolerance(int num_roundings, int64_t k) {
  return num_roundings * 0x1.0p-8 + 4 * 0x1.0p-24 * std::sqrt(static_cast<double>(k));
}

double RowError(std::span<const float> out, std::span<const float> reference, int64_t row_size) {
  return WorstRow(out, reference, row_size, kSmallRow);
}

double RowError(std::span<const Bf16> out, std::span<const float> reference, int64_t row_size) {
  std::vector<float> values(out.size());
  std::transform(out.begin(), out.end(), values.begin(), ToFloat);
  return RowError(values, reference, row_size);
}

double SampledRowError(std::span<const float> out, std::span<const float> reference,
                       int64_t num_columns) {
  return WorstRow(out, reference, num_columns, kSmallSampledRow);
}

}  // namespace lastflop
