#pragma once

#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// What `lastflop kernels` says of a kernel. One line each in kernel_table.cc.
struct KernelInfo {
  absl::string_view name;         // Its folder: "grouped_gemm".
  absl::string_view ops;          // Op names of a step that it runs, separated by spaces.
  absl::string_view backends;     // "cpu cuda": of the project; a build may have fewer.
  absl::string_view formats;      // Weight formats (cache formats for attention); "" without.
  absl::string_view config_keys;  // Plan fields that choose among its configs; "" without.
  absl::string_view summary;      // One line.
};

// The weights of reference kernels: writes the in_features weights of output feature `row` of
// matrix (expert) `matrix` as fp32. Usually ReferenceWeightRow or UnpackRow.
using WeightRows = absl::FunctionRef<void(int64_t matrix, int64_t row, std::span<float> out)>;

}  // namespace lastflop
