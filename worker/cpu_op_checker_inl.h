#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "kernels/tolerance.h"
#include "worker/cpu_op_checker.h"

// The template members of CpuOpChecker, for worker/cpu_check_*.cc.
namespace lastflop {

// Larger outputs are poisoned and scanned in the compared rows only.
inline constexpr size_t kPoisonBytes = size_t{4} << 20;

// Tolerance() for rows of any width: where one value makes up most of a row, or few are sampled, a
// rounding to bf16 can be off by the full 2^-8 of the norm and not by what it is on average.
inline double WorstTolerance(int num_roundings, int64_t k) {
  return Tolerance(2 * num_roundings, k);
}

inline float AsFloat(Bf16 value) { return ToFloat(value); }
inline float AsFloat(float value) { return value; }

template <typename T>
void CpuOpChecker::Poison(std::span<T> out, std::span<const int64_t> rows, int64_t row_size) {
  // All bits set: a NaN in bf16 and in fp32.
  if (out.size_bytes() <= kPoisonBytes) {
    std::memset(static_cast<void*>(out.data()), 0xFF, out.size_bytes());
    return;
  }
  for (const int64_t row : rows) {
    std::memset(static_cast<void*>(out.data() + row * row_size), 0xFF,
                static_cast<size_t>(row_size) * sizeof(T));
  }
}

template <typename T>
bool CpuOpChecker::HasPoison(std::span<T> out, std::span<const int64_t> rows,
                             int64_t row_size) const {
  const auto is_poison = [](T value) { return !std::isfinite(AsFloat(value)); };
  if (out.size_bytes() <= kPoisonBytes) {
    return std::any_of(out.begin(), out.end(), is_poison);
  }
  return std::any_of(rows.begin(), rows.end(), [&](int64_t row) {
    const T* const begin = out.data() + row * row_size;
    return std::any_of(begin, begin + row_size, is_poison);
  });
}

template <typename T>
OpCheck CpuOpChecker::Compare(std::span<T> out, std::span<const int64_t> rows, int64_t row_size,
                              std::span<const int64_t> columns, std::span<const float> reference,
                              double tolerance) const {
  if (HasPoison(out, rows, row_size)) {
    return {.error = std::numeric_limits<double>::infinity(),
            .tolerance = tolerance,
            .what = "a value was not written or is not finite"};
  }
  std::vector<float> values;
  values.reserve(reference.size());
  for (const int64_t row : rows) {
    const T* const begin = out.data() + row * row_size;
    if (columns.empty()) {
      std::transform(begin, begin + row_size, std::back_inserter(values),
                     [](T value) { return AsFloat(value); });
    }
    for (const int64_t column : columns) {
      values.push_back(AsFloat(begin[column]));
    }
  }
  const bool whole_rows = columns.empty() || static_cast<int64_t>(columns.size()) == row_size;
  return {.error = whole_rows
                       ? RowError(std::span<const float>(values), reference, row_size)
                       : SampledRowError(values, reference, static_cast<int64_t>(columns.size())),
          .tolerance = tolerance,
          .what = ""};
}

}  // namespace lastflop
