#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/packed_weights.h"

// Where one weight stands in a panel (packed_weights.h draws the format). Fast kernels know the
// format by itself; this is for packing, unpacking and portable code.
namespace lastflop {

inline constexpr int64_t kBf16PairBytes = kPanelRows * 4;   // Two columns of 16 rows.
inline constexpr int64_t kInt4BlockBytes = kPanelRows * 4;  // Eight columns of 16 rows.
inline constexpr int64_t kInt4ScaleBytes = kPanelRows * 2;  // 16 bf16.

inline constexpr int64_t Int4GroupBytes(int64_t group) {
  return group / 8 * kInt4BlockBytes + kInt4ScaleBytes;
}

inline std::byte* Bf16At(std::byte* panel, int64_t row, int64_t col) {
  return panel + (col / 2) * kBf16PairBytes + row * 4 + (col % 2) * 2;
}
inline void PutBf16(std::byte* panel, int64_t row, int64_t col, Bf16 value) {
  std::memcpy(Bf16At(panel, row, col), &value, sizeof(value));
}

// The 16-bit half of a lane that holds column `col` of `row`, and the shift of its nibble.
inline std::byte* Int4HalfAt(int64_t group, std::byte* panel, int64_t row, int64_t col) {
  return panel + (col / group) * Int4GroupBytes(group) + (col % group) / 8 * kInt4BlockBytes +
         row * 4 + (col % 2) * 2;
}
inline int Int4Shift(int64_t col) { return static_cast<int>(col % 8 / 2 * 4); }
inline std::byte* Int4ScaleAt(int64_t group, std::byte* panel, int64_t row, int64_t col) {
  return panel + (col / group) * Int4GroupBytes(group) + group / 8 * kInt4BlockBytes + row * 2;
}

inline void PutInt4(int64_t group, std::byte* panel, int64_t row, int64_t col, int value) {
  std::byte* at = Int4HalfAt(group, panel, row, col);
  uint16_t half = 0;
  std::memcpy(&half, at, sizeof(half));
  half = static_cast<uint16_t>((half & ~(0xFu << Int4Shift(col))) |
                               (static_cast<unsigned>(value + 8) << Int4Shift(col)));
  std::memcpy(at, &half, sizeof(half));
}
inline void PutInt4Scale(int64_t group, std::byte* panel, int64_t row, int64_t col, Bf16 scale) {
  std::memcpy(Int4ScaleAt(group, panel, row, col), &scale, sizeof(scale));
}
inline int GetInt4(int64_t group, const std::byte* panel, int64_t row, int64_t col) {
  uint16_t half = 0;
  std::memcpy(&half, Int4HalfAt(group, const_cast<std::byte*>(panel), row, col), sizeof(half));
  return static_cast<int>((half >> Int4Shift(col)) & 0xF) - 8;
}
inline float GetInt4Scale(int64_t group, const std::byte* panel, int64_t row, int64_t col) {
  Bf16 scale;
  std::memcpy(&scale, Int4ScaleAt(group, const_cast<std::byte*>(panel), row, col), sizeof(scale));
  return ToFloat(scale);
}

// One weight as fp32.
inline float GetWeight(const PackedLayout& layout, const std::byte* panel, int64_t row,
                       int64_t col) {
  const int64_t group = layout.storage.group_size;
  if (group > 0) {
    return static_cast<float>(GetInt4(group, panel, row, col)) *
           GetInt4Scale(group, panel, row, col);
  }
  Bf16 value;
  std::memcpy(&value, Bf16At(const_cast<std::byte*>(panel), row, col), sizeof(value));
  return ToFloat(value);
}

// A row that is not there: weights of zero.
inline void ZeroRow(const PackedLayout& layout, int64_t row, std::byte* panel) {
  const int64_t group = layout.storage.group_size;
  for (int64_t c = 0; c < layout.cols; ++c) {
    if (group == 0) {
      PutBf16(panel, row, c, Bf16{});
      continue;
    }
    PutInt4(group, panel, row, c, 0);
    if (c % group == 0) {
      PutInt4Scale(group, panel, row, c, Bf16{});
    }
  }
}

}  // namespace lastflop
