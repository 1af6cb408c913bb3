#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/vector_isa.h"

// The inner product that every weight-streaming CPU kernel is made of: some rows of activations
// times one panel of packed weights.
//
// Activations are prepared once, then used with every panel. For bf16 and fp8 weights a prepared
// row is its fp32 values. For int4 weights it is block floating point: per weight group a
// power-of-two scale and 16-bit integers, so that integer multiply-adds (16 a vector instruction)
// do the work and sums within a group are exact. A bf16 has 8 significant bits, so a value within
// 2^-7 of its group's largest is held exactly and a smaller one to 2^-16 of the largest; that is
// far below the bf16 rounding of the activation itself (2^-8). A group with an infinity or NaN
// gives NaN.
namespace lastflop {

// Bytes of one prepared row for weights of this layout; a multiple of 64.
int64_t PreparedRowBytes(const PackedLayout& layout);

// Prepares columns [col_begin, col_begin + num_cols) of a row: `in` points at column col_begin,
// `row` at the whole prepared row. Ranges begin and end at multiples of the group size (of 2 for
// bf16 weights) or at the end of the row.
void PrepareColumns(const PackedLayout& layout, const Bf16* in, int64_t col_begin, int64_t num_cols,
                    std::byte* row, VectorIsa isa);

// A whole row of layout.cols.
inline void PrepareRow(const PackedLayout& layout, const Bf16* in, std::byte* row, VectorIsa isa) {
  PrepareColumns(layout, in, 0, layout.cols, row, isa);
}

// Prepared rows to multiply: row i is at data + (index == nullptr ? i : index[i]) * row_bytes.
struct PreparedRows {
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  const int32_t* index = nullptr;
  int64_t num_rows = 0;
};

// out[i, j] = sum_k rows[i, k] * panel[j, k] for all 16 rows j of the panel; `out` is
// [num_rows, 16] fp32, 64-byte aligned. Rows of the panel that are padding give 0 (NaN when the
// activations have one).
void PanelGemm(const PackedLayout& layout, const std::byte* panel, const PreparedRows& rows,
               float* out, VectorIsa isa);

}  // namespace lastflop
