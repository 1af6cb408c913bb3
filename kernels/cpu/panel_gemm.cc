#include "kernels/cpu/panel_gemm.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/fp8_panel.h"
#include "kernels/cpu/panel_format.h"
#include "kernels/cpu/panel_gemm_builds.h"

namespace lastflop {
namespace {

constexpr int64_t kRowAlignment = 64;

#if !defined(LASTFLOP_HAVE_AVX2)
constexpr bool kHaveAvx2 = false;
#else
constexpr bool kHaveAvx2 = true;
#endif

}  // namespace

int64_t PreparedRowBytes(const PackedLayout& layout) {
  const int64_t group = layout.storage.group_size;
  const int64_t bytes =
      group > 0 ? layout.cols * 2 + layout.cols / group * 8 : (layout.cols + 1) / 2 * 8;
  return (bytes + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
}

void PrepareColumns(const PackedLayout& layout, const Bf16* in, int64_t col_begin, int64_t num_cols,
                    std::byte* row, VectorIsa isa) {
  const bool avx2 = kHaveAvx2 && isa == VectorIsa::kAvx2;
  const int64_t group = layout.storage.group_size;
  if (group == 0) {
    float* out = reinterpret_cast<float*>(row) + col_begin;
#if defined(LASTFLOP_HAVE_AVX2)
    if (avx2) {
      PrepareFp32Avx2(in, num_cols, out);
    }
#endif
    if (!avx2) {
      PrepareFp32Portable(in, num_cols, out);
    }
    if (num_cols % 2 != 0) {
      out[num_cols] = 0;
    }
    return;
  }
  const PreparedLayout prepared{.cols = layout.cols, .group = group};
  auto* integers = reinterpret_cast<int16_t*>(row) + col_begin;
  auto* scale = reinterpret_cast<float*>(row + prepared.scale_offset()) + col_begin / group;
  auto* bias = reinterpret_cast<int32_t*>(row + prepared.bias_offset()) + col_begin / group;
  for (int64_t c = 0; c < num_cols; c += group, ++scale, ++bias) {
#if defined(LASTFLOP_HAVE_AVX2)
    if (avx2) {
      PrepareInt16Avx2(in + c, group, integers + c, scale, bias);
      continue;
    }
#endif
    PrepareInt16Portable(in + c, group, integers + c, scale, bias);
  }
}

void PanelGemm(const PackedLayout& layout, const std::byte* panel, const PreparedRows& rows,
               float* out, VectorIsa isa) {
  const int64_t group = layout.storage.group_size;
  const bool is_fp8 = IsFp8(layout.storage);
#if defined(LASTFLOP_HAVE_AVX2)
  if (isa == VectorIsa::kAvx2) {
    if (is_fp8) {
      PanelGemmFp8Avx2(layout, panel, rows, out);
    } else if (group == 0) {
      PanelGemmBf16Avx2(layout.cols, panel, rows, out);
    } else {
      PanelGemmInt4Avx2(layout.cols, group, panel, rows, out);
    }
    return;
  }
#endif
  if (is_fp8) {
    PanelGemmFp8Portable(layout, panel, rows, out);
  } else if (group == 0) {
    PanelGemmBf16Portable(layout.cols, panel, rows, out);
  } else {
    PanelGemmInt4Portable(layout.cols, group, panel, rows, out);
  }
}

void PrepareFp32Portable(const Bf16* in, int64_t num_cols, float* out) {
  for (int64_t c = 0; c < num_cols; ++c) {
    out[c] = ToFloat(in[c]);
  }
}

void PrepareInt16Portable(const Bf16* in, int64_t group, int16_t* out, float* scale,
                          int32_t* bias) {
  uint32_t max_bits = 0;
  for (int64_t c = 0; c < group; ++c) {
    max_bits = std::max<uint32_t>(max_bits, in[c].bits & 0x7FFFu);
  }
  const Int16Scale scales = Int16ScaleOf(max_bits);
  int32_t sum = 0;
  if (scales.inverse == 0) {
    // All zeros, or an infinity or NaN, which only the scale carries.
    std::fill_n(out, group, int16_t{0});
    *scale = scales.scale;
    *bias = 0;
    return;
  }
  for (int64_t c = 0; c < group; ++c) {
    const auto value = static_cast<int16_t>(std::lrint(ToFloat(in[c]) * scales.inverse));
    out[c] = value;
    sum += value;
  }
  *scale = scales.scale;
  *bias = -8 * sum;
}

void PanelGemmBf16Portable(int64_t cols, const std::byte* panel, const PreparedRows& rows,
                           float* out) {
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    const auto* x = reinterpret_cast<const float*>(PreparedRowAt(rows, i));
    float sums[kPanelRows] = {};
    for (int64_t c = 0; c < cols; c += 2) {
      uint32_t lanes[kPanelRows];
      std::memcpy(lanes, panel + c / 2 * kBf16PairBytes, sizeof(lanes));
      for (int64_t j = 0; j < kPanelRows; ++j) {
        sums[j] += x[c] * std::bit_cast<float>(lanes[j] << 16);
        sums[j] += x[c + 1] * std::bit_cast<float>(lanes[j] & 0xFFFF0000u);
      }
    }
    std::memcpy(out + i * kPanelRows, sums, sizeof(sums));
  }
}

void PanelGemmInt4Portable(int64_t cols, int64_t group, const std::byte* panel,
                           const PreparedRows& rows, float* out) {
  const PreparedLayout prepared{.cols = cols, .group = group};
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    const std::byte* row = PreparedRowAt(rows, i);
    const auto* x = reinterpret_cast<const int16_t*>(row);
    const auto* scale = reinterpret_cast<const float*>(row + prepared.scale_offset());
    const auto* bias = reinterpret_cast<const int32_t*>(row + prepared.bias_offset());
    const std::byte* block = panel;
    float sums[kPanelRows] = {};
    for (int64_t g = 0; g < cols / group; ++g) {
      int32_t integers[kPanelRows];
      std::fill_n(integers, kPanelRows, bias[g]);
      for (int64_t c = g * group; c < (g + 1) * group; c += 8, block += kInt4BlockBytes) {
        uint32_t lanes[kPanelRows];
        std::memcpy(lanes, block, sizeof(lanes));
        for (int64_t j = 0; j < kPanelRows; ++j) {
          for (int pair = 0; pair < 4; ++pair) {
            integers[j] += static_cast<int32_t>((lanes[j] >> (4 * pair)) & 0xF) * x[c + 2 * pair];
            integers[j] +=
                static_cast<int32_t>((lanes[j] >> (4 * pair + 16)) & 0xF) * x[c + 2 * pair + 1];
          }
        }
      }
      Bf16 weight_scales[kPanelRows];
      std::memcpy(weight_scales, block, sizeof(weight_scales));
      block += kInt4ScaleBytes;
      for (int64_t j = 0; j < kPanelRows; ++j) {
        sums[j] += static_cast<float>(integers[j]) * (ToFloat(weight_scales[j]) * scale[g]);
      }
    }
    std::memcpy(out + i * kPanelRows, sums, sizeof(sums));
  }
}

}  // namespace lastflop
