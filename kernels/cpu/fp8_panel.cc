#include "kernels/cpu/fp8_panel.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/panel_gemm_builds.h"

namespace lastflop {
namespace {

// Columns of the stretch that `col` is in.
int64_t StretchCols(const PackedLayout& layout, int64_t col) {
  const int64_t begin = col / layout.scale_cols * layout.scale_cols;
  return std::min(layout.scale_cols, layout.cols - begin);
}

// The largest magnitude of the block that (row, col) is in; rows are a matrix's, from its first
// part on, and blocks of rows are counted from there.
float BlockMax(const PackedLayout& layout, std::span<const float> values, int64_t row,
               int64_t col) {
  const int64_t block_rows = std::max<int64_t>(1, layout.storage.block_rows);
  const int64_t row_begin = row / block_rows * block_rows;
  const int64_t row_end = std::min(layout.rows, row_begin + block_rows);
  float max = 0;
  for (int64_t r = row_begin; r < row_end; ++r) {
    for (int64_t c = col; c < col + StretchCols(layout, col); ++c) {
      max = std::max(max, std::abs(values[static_cast<size_t>(r * layout.cols + c)]));
    }
  }
  return max;
}

}  // namespace

Fp8* Fp8At(const PackedLayout& layout, std::byte* panel, int64_t row, int64_t col) {
  std::byte* const stretch = panel + Fp8StretchOffset(layout.scale_cols, col);
  return reinterpret_cast<Fp8*>(stretch + col % layout.scale_cols * kFp8ColumnBytes + row);
}

float* Fp8ScaleAt(const PackedLayout& layout, std::byte* panel, int64_t row, int64_t col) {
  std::byte* const stretch = panel + Fp8StretchOffset(layout.scale_cols, col);
  return reinterpret_cast<float*>(stretch + StretchCols(layout, col) * kFp8ColumnBytes) + row;
}

float GetFp8Weight(const PackedLayout& layout, const std::byte* panel, int64_t row, int64_t col) {
  auto* const at = const_cast<std::byte*>(panel);
  return ToFloat(*Fp8At(layout, at, row, col)) * *Fp8ScaleAt(layout, at, row, col);
}

void PackFp8Matrix(const PackedLayout& layout, int64_t matrix, std::span<const float> values,
                   std::byte* data) {
  for (int64_t p = 0; p < layout.num_panels(); ++p) {
    std::byte* const panel = data + layout.PanelOffset(matrix, p);
    std::memset(panel, 0, static_cast<size_t>(layout.panel_bytes));
    const PackedLayout::Panel& range = layout.panels[static_cast<size_t>(p)];
    for (int64_t i = 0; i < range.num_rows; ++i) {
      const int64_t row = range.first_row + i;
      float scale = 0;
      for (int64_t c = 0; c < layout.cols; ++c) {
        if (c % layout.scale_cols == 0) {
          scale = Fp8Scale(BlockMax(layout, values, row, c));
          *Fp8ScaleAt(layout, panel, i, c) = scale;
        }
        *Fp8At(layout, panel, i, c) =
            Fp8Quantize(values[static_cast<size_t>(row * layout.cols + c)], scale);
      }
    }
  }
}

void PanelGemmFp8Portable(const PackedLayout& layout, const std::byte* panel,
                          const PreparedRows& rows, float* out) {
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    const auto* const x = reinterpret_cast<const float*>(PreparedRowAt(rows, i));
    for (int64_t j = 0; j < kPanelRows; ++j) {
      float total = 0;
      for (int64_t c = 0; c < layout.cols; ++c) {
        total += x[c] * GetFp8Weight(layout, panel, j, c);
      }
      out[i * kPanelRows + j] = total;
    }
  }
}

}  // namespace lastflop
