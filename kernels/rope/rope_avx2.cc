#include <cstring>

#include "kernels/cpu/vector.h"
#include "kernels/rope/rope_builds.h"

namespace lastflop {
namespace {

void Turn8(__m256 cosine, __m256 sine, const Bf16* first_in, const Bf16* second_in, Bf16* first_out,
           Bf16* second_out) {
  const __m256 first = LoadBf16x8(first_in);
  const __m256 second = LoadBf16x8(second_in);
  StoreBf16x8(_mm256_fmsub_ps(first, cosine, _mm256_mul_ps(second, sine)), first_out);
  StoreBf16x8(_mm256_fmadd_ps(second, cosine, _mm256_mul_ps(first, sine)), second_out);
}

// Eight bf16 as fp8, one in each 32-bit lane; kernels/cpu/fp8.h says the same in plain words.
__m256i Fp8Bits(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i sign = _mm256_srli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(1 << 31)), 24);
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256 magnitude =
      _mm256_min_ps(_mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF))),
                    _mm256_set1_ps(kFp8Max));
  const __m256i m = _mm256_castps_si256(magnitude);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(m, 20), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(m, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFFF)));
  const __m256i normal =
      _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3));
  const __m256i subnormal = _mm256_cvtps_epi32(_mm256_mul_ps(magnitude, _mm256_set1_ps(512.0f)));
  const __m256i is_small =
      _mm256_castps_si256(_mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ));
  __m256i result = _mm256_blendv_epi8(normal, subnormal, is_small);
  result = _mm256_blendv_epi8(result, _mm256_set1_epi32(0x7F), is_nan);
  return _mm256_or_si256(result, sign);
}

}  // namespace

void TurnAvx2(const float* cosines, const float* sines, int64_t half, const Bf16* in, Bf16* out) {
  int64_t i = 0;
  for (; i + 8 <= half; i += 8) {
    Turn8(_mm256_loadu_ps(cosines + i), _mm256_loadu_ps(sines + i), in + i, in + half + i, out + i,
          out + half + i);
  }
  if (i < half) {
    const auto count = static_cast<size_t>(half - i);
    float cosine[8] = {};
    float sine[8] = {};
    Bf16 first[8] = {};
    Bf16 second[8] = {};
    std::memcpy(cosine, cosines + i, count * sizeof(float));
    std::memcpy(sine, sines + i, count * sizeof(float));
    std::memcpy(first, in + i, count * sizeof(Bf16));
    std::memcpy(second, in + half + i, count * sizeof(Bf16));
    Turn8(_mm256_loadu_ps(cosine), _mm256_loadu_ps(sine), first, second, first, second);
    std::memcpy(out + i, first, count * sizeof(Bf16));
    std::memcpy(out + half + i, second, count * sizeof(Bf16));
  }
}

void Bf16ToFp8Avx2(const Bf16* in, int64_t count, Fp8* out) {
  for (int64_t i = 0; i < count; i += 8) {
    const auto left = static_cast<size_t>(count - i < 8 ? count - i : 8);
    Bf16 tail[8] = {};
    const Bf16* from = in + i;
    if (left < 8) {
      std::memcpy(tail, from, left * sizeof(Bf16));
      from = tail;
    }
    const __m256i bits = Fp8Bits(LoadBf16x8(from));
    const __m128i words =
        _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    Fp8 bytes[16];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(bytes), _mm_packus_epi16(words, words));
    std::memcpy(out + i, bytes, left);
  }
}

}  // namespace lastflop
