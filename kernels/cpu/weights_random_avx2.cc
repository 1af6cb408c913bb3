#include <cstring>

#include "common/random.h"
#include "kernels/cpu/panel_format.h"
#include "kernels/cpu/vector.h"
#include "kernels/cpu/weights_random_builds.h"

namespace lastflop {
namespace {

// The 16-bit values of draws first_draw, first_draw + 1, centered: 8 weights over `unit`.
__m256i Centered8(uint64_t seed, uint64_t stream, uint64_t first_draw) {
  const __m128i bits =
      _mm_set_epi64x(static_cast<int64_t>(CounterRandom(seed, stream, first_draw + 1)),
                     static_cast<int64_t>(CounterRandom(seed, stream, first_draw)));
  return _mm256_sub_epi32(_mm256_cvtepu16_epi32(bits), _mm256_set1_epi32(32768));
}

uint32_t OrLanes(__m256i v) {
  __m128i bits = _mm_or_si128(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  bits = _mm_or_si128(bits, _mm_shuffle_epi32(bits, 0x4E));
  bits = _mm_or_si128(bits, _mm_shuffle_epi32(bits, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(bits));
}

}  // namespace

void FillBf16RowAvx2(const RowDraws& draws, int64_t cols, uint32_t* lanes) {
  const __m256 unit = _mm256_set1_ps(draws.unit);
  for (int64_t c = 0; c < cols; c += 8) {
    const __m256i centered =
        Centered8(draws.seed, draws.stream, draws.first_draw + static_cast<uint64_t>(c) / 4);
    Bf16 values[8];
    StoreBf16x8(_mm256_mul_ps(_mm256_cvtepi32_ps(centered), unit), values);
    uint32_t pairs[4];
    std::memcpy(pairs, values, sizeof(pairs));
    for (int64_t pair = 0; pair < 4; ++pair) {
      lanes[(c / 2 + pair) * kPanelRows] = pairs[pair];
    }
  }
}

void FillBf16Avx2(const RowDraws& draws, int64_t count, Bf16* out) {
  const __m256 unit = _mm256_set1_ps(draws.unit);
  for (int64_t i = 0; i < count; i += 8) {
    const __m256i centered =
        Centered8(draws.seed, draws.stream, draws.first_draw + static_cast<uint64_t>(i) / 4);
    StoreBf16x8(_mm256_mul_ps(_mm256_cvtepi32_ps(centered), unit), out + i);
  }
}

void FillInt4RowAvx2(const RowDraws& draws, int64_t group, uint32_t* lanes, Bf16* scale) {
  constexpr int64_t kMaxVectors = 128 / 8;
  __m256i centered[kMaxVectors];
  __m256i max = _mm256_setzero_si256();
  for (int64_t i = 0; i < group / 8; ++i) {
    centered[i] =
        Centered8(draws.seed, draws.stream, draws.first_draw + static_cast<uint64_t>(i) * 2);
    max = _mm256_max_epi32(max, _mm256_abs_epi32(centered[i]));
  }
  // Rounding keeps order: the largest integer gives the largest weight.
  const float largest = MaxLanes(_mm256_cvtepi32_ps(max)) * draws.unit;
  *scale = ToBf16(largest / 7.0f);
  if (scale->bits == 0) {
    for (int64_t i = 0; i < group / 8; ++i) {
      lanes[i * kPanelRows] = 0x88888888u;
    }
    return;
  }
  const __m256 unit = _mm256_set1_ps(draws.unit);
  const __m256 divisor = _mm256_set1_ps(ToFloat(*scale));
  const __m256i shift = _mm256_setr_epi32(0, 16, 4, 20, 8, 24, 12, 28);
  for (int64_t i = 0; i < group / 8; ++i) {
    const __m256 weights = _mm256_mul_ps(_mm256_cvtepi32_ps(centered[i]), unit);
    __m256i values = _mm256_cvtps_epi32(_mm256_div_ps(weights, divisor));
    values =
        _mm256_min_epi32(_mm256_max_epi32(values, _mm256_set1_epi32(-8)), _mm256_set1_epi32(7));
    values = _mm256_add_epi32(values, _mm256_set1_epi32(8));
    lanes[i * kPanelRows] = OrLanes(_mm256_sllv_epi32(values, shift));
  }
}

}  // namespace lastflop
