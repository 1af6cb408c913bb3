#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/panel_gemm.h"

// What each build of panel_gemm has, and the prepared row that they share:
//
//   fp32:  float[cols rounded up to 2]
//   int16: int16_t[cols], float scale[cols / group], int32_t bias[cols / group], where bias is
//          -8 * sum of the group's integers (nibbles are stored as value + 8).
namespace lastflop {

struct PreparedLayout {
  int64_t cols = 0;
  int64_t group = 0;
  int64_t scale_offset() const { return cols * 2; }
  int64_t bias_offset() const { return cols * 2 + cols / group * 4; }
};

inline const std::byte* PreparedRowAt(const PreparedRows& rows, int64_t i) {
  return rows.data + (rows.index == nullptr ? i : rows.index[i]) * rows.row_bytes;
}

// The power of two that takes a group whose largest magnitude is the bf16 `max_bits` (sign cleared)
// into 15 bits, and back.
struct Int16Scale {
  float scale = 0;    // Of the integers; NaN when the group has an infinity or NaN.
  float inverse = 0;  // What values are multiplied with.
};
inline Int16Scale Int16ScaleOf(uint32_t max_bits) {
  const auto exponent = static_cast<int>(max_bits >> 7);  // value < 2^(exponent - 126)
  if (exponent == 0xFF) {
    return {.scale = std::numeric_limits<float>::quiet_NaN(), .inverse = 0};
  }
  if (exponent < 20) {
    return {};  // Under 2^-106: zero beside anything.
  }
  return {.scale = std::bit_cast<float>(static_cast<uint32_t>(exponent - 14) << 23),
          .inverse = std::bit_cast<float>(static_cast<uint32_t>(268 - exponent) << 23)};
}

void PrepareFp32Portable(const Bf16* in, int64_t num_cols, float* out);
void PrepareInt16Portable(const Bf16* in, int64_t group, int16_t* out, float* scale, int32_t* bias);
void PanelGemmBf16Portable(int64_t cols, const std::byte* panel, const PreparedRows& rows,
                           float* out);
void PanelGemmInt4Portable(int64_t cols, int64_t group, const std::byte* panel,
                           const PreparedRows& rows, float* out);

void PrepareFp32Avx2(const Bf16* in, int64_t num_cols, float* out);
void PrepareInt16Avx2(const Bf16* in, int64_t group, int16_t* out, float* scale, int32_t* bias);
void PanelGemmBf16Avx2(int64_t cols, const std::byte* panel, const PreparedRows& rows, float* out);
void PanelGemmInt4Avx2(int64_t cols, int64_t group, const std::byte* panel,
                       const PreparedRows& rows, float* out);

}  // namespace lastflop
