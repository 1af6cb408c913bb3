#pragma once

#if !defined(__AVX2__) || !defined(__FMA__)
#error "vector.h is for *_avx2.cc files: list them in LASTFLOP_AVX2_SOURCES of kernels/CMakeLists"
#endif

#include <immintrin.h>

#include <cstdint>

#include "kernels/cpu/bf16.h"

// AVX2 pieces that the fast kernels share. Everything here is internal to the file that includes
// it, so that no AVX2 copy of an inline function can be linked into code for an older CPU.
namespace lastflop {
namespace {

// 8 bf16 at `in` (unaligned) as fp32.
[[maybe_unused]] inline __m256 LoadBf16x8(const Bf16* in) {
  const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

// fp32 to bf16 bits in the low half of each lane, ties to even. NaN is not preserved: kernels do
// not make one from finite input.
[[maybe_unused]] inline __m256i RoundToBf16Bits(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF));
  return _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
}

// Stores 8 fp32 as bf16 at `out` (unaligned).
[[maybe_unused]] inline void StoreBf16x8(__m256 value, Bf16* out) {
  const __m256i bits = RoundToBf16Bits(value);
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out), packed);
}

// The 16 even and the 16 odd elements of pairs: for a vector of 32-bit lanes that hold two bf16,
// the lower one and the upper one as fp32.
[[maybe_unused]] inline __m256 LowerBf16(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
}
[[maybe_unused]] inline __m256 UpperBf16(__m256i pairs) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
}

[[maybe_unused]] inline float SumLanes(__m256 v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
  return _mm_cvtss_f32(sum);
}

[[maybe_unused]] inline float MaxLanes(__m256 v) {
  __m128 max = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  max = _mm_max_ps(max, _mm_movehl_ps(max, max));
  max = _mm_max_ss(max, _mm_movehdup_ps(max));
  return _mm_cvtss_f32(max);
}

// exp(x) to about 2 ulp; 0 below -87.3, clamped at 88.7. Range reduction to |r| <= ln(2) / 2 and
// the Taylor polynomial of degree 7, whose remainder there is under 1e-8.
[[maybe_unused]] inline __m256 Exp(__m256 x) {
  const __m256 low = _mm256_set1_ps(-87.33654f);
  const __m256 clamped = _mm256_min_ps(_mm256_max_ps(x, low), _mm256_set1_ps(88.02969f));
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(clamped, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), clamped);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040.0f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  const __m256 result = _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
  return _mm256_and_ps(result, _mm256_cmp_ps(x, low, _CMP_GE_OQ));
}

}  // namespace
}  // namespace lastflop
