#include "kernels/cpu/fp8_panel.h"
#include "kernels/cpu/panel_gemm_builds.h"
#include "kernels/cpu/vector.h"

namespace lastflop {
namespace {

// As in panel_gemm_avx2.cc: 6 rows x 2 vectors of sums, 2 of weights, one of activations.
constexpr int64_t kMaxRows = 6;
constexpr int64_t kPrefetchBytes = 1024;

// Weights of 16 rows of a column, 2^8 times too small: the fields of e4m3 moved to those of fp16,
// whose exponent counts from 15 where e4m3's counts from 7. Subnormals come out right.
struct Column {
  __m256 low;
  __m256 high;
};
inline Column LoadColumn(const std::byte* at) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at));
  const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
  const __m256i halves = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  return {.low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          .high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}

template <int kRows>
void Fp8Pass(int64_t cols, int64_t scale_cols, const std::byte* panel, const float* const* x,
             float* out) {
#pragma GCC unroll 12
  for (int i = 0; i < kRows * 2; ++i) {
    _mm256_storeu_ps(out + i * 8, _mm256_setzero_ps());
  }
  for (int64_t begin = 0; begin < cols; begin += scale_cols) {
    const int64_t end = begin + scale_cols < cols ? begin + scale_cols : cols;
    __m256 sums[kRows][2];
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      sums[i][0] = _mm256_setzero_ps();
      sums[i][1] = _mm256_setzero_ps();
    }
    for (int64_t c = begin; c < end; ++c, panel += kFp8ColumnBytes) {
      if constexpr (kRows == 1) {
        if (c % 4 == 0) {
          _mm_prefetch(reinterpret_cast<const char*>(panel + kPrefetchBytes), _MM_HINT_T0);
        }
      }
      const Column column = LoadColumn(panel);
#pragma GCC unroll 12
      for (int i = 0; i < kRows; ++i) {
        const __m256 value = _mm256_broadcast_ss(x[i] + c);
        sums[i][0] = _mm256_fmadd_ps(value, column.low, sums[i][0]);
        sums[i][1] = _mm256_fmadd_ps(value, column.high, sums[i][1]);
      }
    }
    const __m256 back = _mm256_set1_ps(256.0f);
    const auto* const scales = reinterpret_cast<const float*>(panel);
    const __m256 scale0 = _mm256_mul_ps(_mm256_loadu_ps(scales), back);
    const __m256 scale1 = _mm256_mul_ps(_mm256_loadu_ps(scales + 8), back);
    panel += kFp8ScaleBytes;
#pragma GCC unroll 12
    for (int i = 0; i < kRows; ++i) {
      float* const at = out + i * 16;
      _mm256_storeu_ps(at, _mm256_fmadd_ps(sums[i][0], scale0, _mm256_loadu_ps(at)));
      _mm256_storeu_ps(at + 8, _mm256_fmadd_ps(sums[i][1], scale1, _mm256_loadu_ps(at + 8)));
    }
  }
}

}  // namespace

void PanelGemmFp8Avx2(const PackedLayout& layout, const std::byte* panel, const PreparedRows& rows,
                      float* out) {
  using Pass = void (*)(int64_t, int64_t, const std::byte*, const float* const*, float*);
  constexpr Pass kPasses[] = {Fp8Pass<1>, Fp8Pass<2>, Fp8Pass<3>,
                              Fp8Pass<4>, Fp8Pass<5>, Fp8Pass<6>};
  for (int64_t first = 0; first < rows.num_rows;) {
    // 7 rows are 4 + 3, not 6 + 1: a pass of one row is bound by decoding.
    const int64_t left = rows.num_rows - first;
    const int64_t half = (left + 1) / 2;
    const int64_t count = left <= kMaxRows ? left : left < 2 * kMaxRows ? half : kMaxRows;
    const float* x[kMaxRows];
    for (int64_t i = 0; i < count; ++i) {
      x[i] = reinterpret_cast<const float*>(PreparedRowAt(rows, first + i));
    }
    kPasses[count - 1](layout.cols, layout.scale_cols, panel, x, out + first * 16);
    first += count;
  }
}

}  // namespace lastflop
