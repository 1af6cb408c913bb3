#include "kernels/cpu/vector.h"
#include "kernels/dequant/dequant_builds.h"

namespace lastflop {
namespace {

// bf16 of (nibble - 8) * scale for both columns of a pair, 8 rows: `nibbles` has the lower column
// in bits 0-3 and the upper one in bits 16-19 of each lane.
__m256i DequantPair(__m256i nibbles, __m256 scale) {
  const __m256i eight = _mm256_set1_epi32(8);
  const __m256i lower = _mm256_sub_epi32(_mm256_and_si256(nibbles, _mm256_set1_epi32(0xF)), eight);
  const __m256i upper = _mm256_sub_epi32(_mm256_srli_epi32(nibbles, 16), eight);
  const __m256i lower_bits = RoundToBf16Bits(_mm256_mul_ps(_mm256_cvtepi32_ps(lower), scale));
  const __m256i upper_bits = RoundToBf16Bits(_mm256_mul_ps(_mm256_cvtepi32_ps(upper), scale));
  return _mm256_or_si256(lower_bits, _mm256_slli_epi32(upper_bits, 16));
}

}  // namespace

void DequantPanelAvx2(int64_t cols, int64_t group, const std::byte* panel, std::byte* out) {
  const __m256i mask = _mm256_set1_epi16(0xF);
  for (int64_t g = 0; g < cols / group; ++g) {
    const auto* scales = reinterpret_cast<const Bf16*>(panel + group * 8);
    const __m256 scale[2] = {LoadBf16x8(scales), LoadBf16x8(scales + 8)};
    for (int64_t c = 0; c < group; c += 8, panel += 64) {
      for (int64_t half = 0; half < 2; ++half) {
        __m256i nibbles = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(panel + 32 * half));
        for (int64_t pair = 0; pair < 4; ++pair) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 64 * pair + 32 * half),
                              DequantPair(_mm256_and_si256(nibbles, mask), scale[half]));
          nibbles = _mm256_srli_epi16(nibbles, 4);
        }
      }
      out += 256;
    }
    panel += 32;
  }
}

}  // namespace lastflop
