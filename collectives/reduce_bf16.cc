#include "collectives/reduce_bf16.h"

#include <bit>

#if defined(__x86_64__)
#include <immintrin.h>
// The rest of the program runs on any x86-64, so the wide build of a loop is chosen at run time.
#define LASTFLOP_AVX2 __attribute__((target("avx2")))
#endif

namespace lastflop {
namespace {

inline float ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// NaN keeps its sign and stays quiet; everything else rounds to nearest even.
inline uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) {
    return static_cast<uint16_t>((bits >> 16) | 0x40);
  }
  return static_cast<uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

#if defined(__x86_64__)
bool HasAvx2() { return __builtin_cpu_supports("avx2") != 0; }

LASTFLOP_AVX2 inline __m256 Load8(const uint16_t* in) {
  const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

LASTFLOP_AVX2 inline void Store8(__m256 value, uint16_t* out) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), is_nan);
  rounded = _mm256_srli_epi32(rounded, 16);
  const __m256i packed = _mm256_packus_epi32(rounded, rounded);
  const __m256i ordered = _mm256_permute4x64_epi64(packed, 0b1000);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(ordered));
}

// Each returns how many of `count` elements it did: a multiple of 8.
LASTFLOP_AVX2 int64_t SumRowsAvx2(std::span<const uint16_t* const> rows, int64_t count,
                                  uint16_t* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    __m256 sum = Load8(rows[0] + i);
    for (size_t r = 1; r < rows.size(); ++r) {
      sum = _mm256_add_ps(sum, Load8(rows[r] + i));
    }
    Store8(sum, out + i);
  }
  return i;
}

LASTFLOP_AVX2 int64_t AddPartialAvx2(const float* partial, const uint16_t* in, int64_t count,
                                     float* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 before = partial != nullptr ? _mm256_loadu_ps(partial + i) : _mm256_setzero_ps();
    _mm256_storeu_ps(out + i, _mm256_add_ps(before, Load8(in + i)));
  }
  return i;
}

LASTFLOP_AVX2 int64_t RoundAvx2(const float* in, int64_t count, uint16_t* out) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    Store8(_mm256_loadu_ps(in + i), out + i);
  }
  return i;
}
#else
bool HasAvx2() { return false; }
int64_t SumRowsAvx2(std::span<const uint16_t* const>, int64_t, uint16_t*) { return 0; }
int64_t AddPartialAvx2(const float*, const uint16_t*, int64_t, float*) { return 0; }
int64_t RoundAvx2(const float*, int64_t, uint16_t*) { return 0; }
#endif

}  // namespace

void SumBf16Rows(std::span<const uint16_t* const> rows, int64_t count, uint16_t* out) {
  for (int64_t i = HasAvx2() ? SumRowsAvx2(rows, count, out) : 0; i < count; ++i) {
    float sum = ToFloat(rows[0][i]);
    for (size_t r = 1; r < rows.size(); ++r) {
      sum += ToFloat(rows[r][i]);
    }
    out[i] = ToBf16(sum);
  }
}

void AddPartial(const float* partial, const uint16_t* in, int64_t count, float* out) {
  for (int64_t i = HasAvx2() ? AddPartialAvx2(partial, in, count, out) : 0; i < count; ++i) {
    out[i] = (partial != nullptr ? partial[i] : 0.0f) + ToFloat(in[i]);
  }
}

void RoundToBf16Row(const float* in, int64_t count, uint16_t* out) {
  for (int64_t i = HasAvx2() ? RoundAvx2(in, count, out) : 0; i < count; ++i) {
    out[i] = ToBf16(in[i]);
  }
}

}  // namespace lastflop
