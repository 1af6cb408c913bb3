#pragma once

#include <cstdint>

#include "common/random.h"
#include "common/words.h"

namespace lastflop {

// The part of a model's weight tensor [matrices, rows_full, cols_full] that one rank holds, as a
// value that kernels take as a parameter. Same meaning as WeightSlice and PackedLayout of
// kernels/cpu: weight [matrix, row, col] of the slice is
// TrueWeight(seed, stream, index in the full tensor, amplitude), then stored in the format.
struct CudaWeightSlice {
  uint64_t seed = 0;
  uint64_t stream = 0;  // Unique to the tensor (weight kind and layer).
  float amplitude = 0;  // sqrt(3 / in_features of the model); 0 makes all weights zero.
  int64_t rows_full = 0;
  int64_t cols_full = 0;
  int64_t first_matrix = 0;  // The slice's matrix m is the model's first_matrix + m.
  int64_t num_matrices = 1;
  int num_parts = 1;                      // 1 to 3: gate and up; query, key and value.
  int64_t part_rows[3] = {0, 0, 0};       // Rows of the slice in each part, in order.
  int64_t part_row_begin[3] = {0, 0, 0};  // Row of the full matrix where the part begins.
  int64_t col_begin = 0;
  int64_t cols = 0;                           // Input features of the slice.
  WeightFormat format = WeightFormat::kBf16;  // One that PanelFormatOf() gives (panel.h).

  LASTFLOP_HOST_DEVICE constexpr int64_t rows() const {
    return part_rows[0] + (num_parts > 1 ? part_rows[1] : 0) + (num_parts > 2 ? part_rows[2] : 0);
  }
  // Index in the full tensor of column 0 of the slice's row.
  LASTFLOP_HOST_DEVICE constexpr uint64_t RowIndex(int64_t matrix, int64_t row) const {
    int part = 0;
    while (part + 1 < num_parts && row >= part_rows[part]) {
      row -= part_rows[part];
      ++part;
    }
    const int64_t full_row = (first_matrix + matrix) * rows_full + part_row_begin[part] + row;
    return static_cast<uint64_t>(full_row * cols_full + col_begin);
  }
};

}  // namespace lastflop
