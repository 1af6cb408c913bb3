#include <cstring>

#include "kernels/cpu/panel_gemm_builds.h"
#include "kernels/cpu/vector.h"

namespace lastflop {
namespace {

// Rows that share the decoded weights of a pass: 6 rows x 2 vectors of sums, 2 of weights and one
// of activations are 15 of the 16 registers.
constexpr int64_t kMaxRows = 6;

// Bytes that a pass asks for ahead of its reads: few rows are bound by memory, and the hardware
// prefetcher stops at 4 KiB pages.
constexpr int64_t kPrefetchBytes = 2048;

__m256i Load32(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

// Two neighbouring columns of an int16 row in every lane.
__m256i BroadcastPair(const int16_t* at) {
  int32_t pair = 0;
  std::memcpy(&pair, at, sizeof(pair));
  return _mm256_set1_epi32(pair);
}

template <int kRows>
void Bf16Pass(int64_t cols, const std::byte* panel, const float* const* x, float* out) {
  __m256 sums[kRows][2];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    sums[i][0] = _mm256_setzero_ps();
    sums[i][1] = _mm256_setzero_ps();
  }
  for (int64_t c = 0; c < cols; c += 2, panel += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(panel + kPrefetchBytes), _MM_HINT_T0);
    const __m256i w0 = Load32(panel);
    const __m256i w1 = Load32(panel + 32);
    const __m256 lower0 = LowerBf16(w0);
    const __m256 lower1 = LowerBf16(w1);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m256 value = _mm256_broadcast_ss(x[i] + c);
      sums[i][0] = _mm256_fmadd_ps(value, lower0, sums[i][0]);
      sums[i][1] = _mm256_fmadd_ps(value, lower1, sums[i][1]);
    }
    const __m256 upper0 = UpperBf16(w0);
    const __m256 upper1 = UpperBf16(w1);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m256 value = _mm256_broadcast_ss(x[i] + c + 1);
      sums[i][0] = _mm256_fmadd_ps(value, upper0, sums[i][0]);
      sums[i][1] = _mm256_fmadd_ps(value, upper1, sums[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    _mm256_storeu_ps(out + i * 16, sums[i][0]);
    _mm256_storeu_ps(out + i * 16 + 8, sums[i][1]);
  }
}

// Makes the compiler finish these two sums here. GCC 12 otherwise computes the products of a whole
// block first and adds them up later, through the stack.
inline void KeepOrder(__m256i& a, __m256i& b) { asm volatile("" : "+x"(a), "+x"(b)); }

// Integers, scales and biases of one prepared row.
struct Int16Row {
  const int16_t* x = nullptr;
  const float* scale = nullptr;
  const int32_t* bias = nullptr;
};

// The integer sums of one weight group. `kNibble` j of each 16-bit half holds columns 2j, 2j + 1.
template <int kRows, int kNibble>
inline void AddNibble(__m256i w0, __m256i w1, const Int16Row* rows, int64_t c,
                      __m256i (&sums)[kRows][2]) {
  const __m256i mask = _mm256_set1_epi16(0xF);
  __m256i n0 = kNibble == 0 ? w0 : _mm256_srli_epi16(w0, 4 * kNibble);
  __m256i n1 = kNibble == 0 ? w1 : _mm256_srli_epi16(w1, 4 * kNibble);
  if constexpr (kNibble != 3) {
    n0 = _mm256_and_si256(n0, mask);
    n1 = _mm256_and_si256(n1, mask);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    const __m256i pair = BroadcastPair(rows[i].x + c + 2 * kNibble);
    sums[i][0] = _mm256_add_epi32(sums[i][0], _mm256_madd_epi16(n0, pair));
    sums[i][1] = _mm256_add_epi32(sums[i][1], _mm256_madd_epi16(n1, pair));
    KeepOrder(sums[i][0], sums[i][1]);
  }
}

template <int kRows>
void Int4Pass(int64_t cols, int64_t group, const std::byte* panel, const Int16Row* rows,
              float* out) {
  __m256 totals[kRows][2];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    totals[i][0] = _mm256_setzero_ps();
    totals[i][1] = _mm256_setzero_ps();
  }
  const int64_t num_groups = cols / group;
  for (int64_t g = 0; g < num_groups; ++g) {
    __m256i sums[kRows][2];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      sums[i][0] = _mm256_set1_epi32(rows[i].bias[g]);
      sums[i][1] = sums[i][0];
    }
    for (int64_t c = g * group; c < (g + 1) * group; c += 8, panel += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(panel + kPrefetchBytes), _MM_HINT_T0);
      const __m256i w0 = Load32(panel);
      const __m256i w1 = Load32(panel + 32);
      AddNibble<kRows, 0>(w0, w1, rows, c, sums);
      AddNibble<kRows, 1>(w0, w1, rows, c, sums);
      AddNibble<kRows, 2>(w0, w1, rows, c, sums);
      AddNibble<kRows, 3>(w0, w1, rows, c, sums);
    }
    const __m256 scale0 = LoadBf16x8(reinterpret_cast<const Bf16*>(panel));
    const __m256 scale1 = LoadBf16x8(reinterpret_cast<const Bf16*>(panel) + 8);
    panel += 32;
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const __m256 scale = _mm256_broadcast_ss(rows[i].scale + g);
      totals[i][0] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[i][0]), _mm256_mul_ps(scale0, scale),
                                     totals[i][0]);
      totals[i][1] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[i][1]), _mm256_mul_ps(scale1, scale),
                                     totals[i][1]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i) {
    _mm256_storeu_ps(out + i * 16, totals[i][0]);
    _mm256_storeu_ps(out + i * 16 + 8, totals[i][1]);
  }
}

// Calls pass(kRows, first row) over all rows, with as many rows at once as fit.
template <typename Pass>
void ForEachPass(int64_t num_rows, const Pass& pass) {
  for (int64_t i = 0; i < num_rows;) {
    // 7 rows are 4 + 3, not 6 + 1: a pass of one row is bound by decoding.
    const int64_t left = num_rows - i;
    const int64_t count = left > kMaxRows && left < 2 * kMaxRows ? (left + 1) / 2
                          : left < kMaxRows                      ? left
                                                                 : kMaxRows;
    pass(count, i);
    i += count;
  }
}

}  // namespace

void PrepareFp32Avx2(const Bf16* in, int64_t num_cols, float* out) {
  int64_t c = 0;
  for (; c + 8 <= num_cols; c += 8) {
    _mm256_storeu_ps(out + c, LoadBf16x8(in + c));
  }
  for (; c < num_cols; ++c) {
    const __m128i bits = _mm_cvtsi32_si128(static_cast<int>(uint32_t{in[c].bits} << 16));
    out[c] = _mm_cvtss_f32(_mm_castsi128_ps(bits));
  }
}

void PrepareInt16Avx2(const Bf16* in, int64_t group, int16_t* out, float* scale, int32_t* bias) {
  __m256i max = _mm256_setzero_si256();
  const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
  for (int64_t c = 0; c < group; c += 16) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in + c));
    max = _mm256_max_epu16(max, _mm256_and_si256(bits, magnitude));
  }
  // minpos finds the least: of the complement, so the largest.
  const __m128i max8 = _mm_max_epu16(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(max8, _mm_set1_epi16(-1)));
  const uint32_t max_bits = 0xFFFFu - static_cast<uint32_t>(_mm_extract_epi16(least, 0));
  const Int16Scale scales = Int16ScaleOf(max_bits);
  if (scales.inverse == 0) {
    // All zeros, or an infinity or NaN, which only the scale carries.
    std::memset(out, 0, static_cast<size_t>(group) * sizeof(*out));
    *scale = scales.scale;
    *bias = 0;
    return;
  }
  const __m256 inverse = _mm256_set1_ps(scales.inverse);
  __m256i sum = _mm256_setzero_si256();
  for (int64_t c = 0; c < group; c += 16) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(LoadBf16x8(in + c), inverse));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(LoadBf16x8(in + c + 8), inverse));
    sum = _mm256_add_epi32(sum, _mm256_add_epi32(low, high));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + c), packed);
  }
  __m128i sum4 = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  sum4 = _mm_add_epi32(sum4, _mm_shuffle_epi32(sum4, 0x4E));
  sum4 = _mm_add_epi32(sum4, _mm_shuffle_epi32(sum4, 0xB1));
  *scale = scales.scale;
  *bias = -8 * _mm_cvtsi128_si32(sum4);
}

void PanelGemmBf16Avx2(int64_t cols, const std::byte* panel, const PreparedRows& rows, float* out) {
  ForEachPass(rows.num_rows, [&](int64_t count, int64_t first) {
    const float* x[kMaxRows];
    for (int64_t i = 0; i < count; ++i) {
      x[i] = reinterpret_cast<const float*>(PreparedRowAt(rows, first + i));
    }
    float* at = out + first * 16;
    switch (count) {
      case 1:
        return Bf16Pass<1>(cols, panel, x, at);
      case 2:
        return Bf16Pass<2>(cols, panel, x, at);
      case 3:
        return Bf16Pass<3>(cols, panel, x, at);
      case 4:
        return Bf16Pass<4>(cols, panel, x, at);
      case 5:
        return Bf16Pass<5>(cols, panel, x, at);
      default:
        return Bf16Pass<6>(cols, panel, x, at);
    }
  });
}

void PanelGemmInt4Avx2(int64_t cols, int64_t group, const std::byte* panel,
                       const PreparedRows& rows, float* out) {
  const PreparedLayout prepared{.cols = cols, .group = group};
  ForEachPass(rows.num_rows, [&](int64_t count, int64_t first) {
    Int16Row x[kMaxRows];
    for (int64_t i = 0; i < count; ++i) {
      const std::byte* row = PreparedRowAt(rows, first + i);
      x[i] = {.x = reinterpret_cast<const int16_t*>(row),
              .scale = reinterpret_cast<const float*>(row + prepared.scale_offset()),
              .bias = reinterpret_cast<const int32_t*>(row + prepared.bias_offset())};
    }
    float* at = out + first * 16;
    switch (count) {
      case 1:
        return Int4Pass<1>(cols, group, panel, x, at);
      case 2:
        return Int4Pass<2>(cols, group, panel, x, at);
      case 3:
        return Int4Pass<3>(cols, group, panel, x, at);
      case 4:
        return Int4Pass<4>(cols, group, panel, x, at);
      case 5:
        return Int4Pass<5>(cols, group, panel, x, at);
      default:
        return Int4Pass<6>(cols, group, panel, x, at);
    }
  });
}

}  // namespace lastflop
