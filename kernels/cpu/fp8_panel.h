#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/fp8.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/panel_gemm.h"

// fp8 weights in panels (packed_weights.h draws the format). Reading a scale a row and stretch
// where a checkpoint has one a block costs 3% more bytes and spares blocks that a slice cuts.
namespace lastflop {

inline constexpr int64_t kFp8ColumnBytes = kPanelRows;     // One column of 16 rows.
inline constexpr int64_t kFp8ScaleBytes = kPanelRows * 4;  // 16 fp32.

// Bytes of a panel of `cols` columns with a scale every `scale_cols` of them.
inline constexpr int64_t Fp8PanelBytes(int64_t cols, int64_t scale_cols) {
  return cols * kFp8ColumnBytes + (cols + scale_cols - 1) / scale_cols * kFp8ScaleBytes;
}

// Where the stretch of columns that share scales begins, for the stretch that column `col` is in.
inline constexpr int64_t Fp8StretchOffset(int64_t scale_cols, int64_t col) {
  return col / scale_cols * (scale_cols * kFp8ColumnBytes + kFp8ScaleBytes);
}

// Weight and scale of (row of the panel, column).
Fp8* Fp8At(const PackedLayout& layout, std::byte* panel, int64_t row, int64_t col);
float* Fp8ScaleAt(const PackedLayout& layout, std::byte* panel, int64_t row, int64_t col);
float GetFp8Weight(const PackedLayout& layout, const std::byte* panel, int64_t row, int64_t col);

// Scale of weights whose largest magnitude is `max`: it becomes 448.
inline float Fp8Scale(float max) { return max / kFp8Max; }

// fp8(weight / scale); 0 when the scale is 0.
inline Fp8 Fp8Quantize(float weight, float scale) {
  return scale > 0 ? ToFp8(weight / scale) : Fp8{};
}

// PackMatrix for fp8 layouts: blocks of block_rows rows (one row for fp8) share a scale.
void PackFp8Matrix(const PackedLayout& layout, int64_t matrix, std::span<const float> values,
                   std::byte* data);

// PanelGemm for fp8 layouts: prepared rows are fp32.
void PanelGemmFp8Portable(const PackedLayout& layout, const std::byte* panel,
                          const PreparedRows& rows, float* out);
void PanelGemmFp8Avx2(const PackedLayout& layout, const std::byte* panel, const PreparedRows& rows,
                      float* out);

}  // namespace lastflop
