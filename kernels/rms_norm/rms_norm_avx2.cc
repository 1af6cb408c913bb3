#include <cmath>

#include "kernels/cpu/vector.h"
#include "kernels/rms_norm/rms_norm_builds.h"

namespace lastflop {
namespace {

inline float Value(Bf16 value) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(value.bits) << 16)));
}

inline Bf16 Rounded(float value) {
  const __m256i bits = RoundToBf16Bits(_mm256_set1_ps(value));
  return {static_cast<uint16_t>(_mm_cvtsi128_si32(_mm256_castsi256_si128(bits)))};
}

}  // namespace

void RmsNormRowAvx2(const NormRow& row) {
  Bf16* const kept = row.residual != nullptr ? row.residual : row.out;
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  int64_t i = 0;
  for (; i + 16 <= row.size; i += 16) {
    for (int half = 0; half < 2; ++half) {
      const int64_t at = i + 8 * half;
      __m256 value = LoadBf16x8(row.in + at);
      if (row.add_residual) {
        StoreBf16x8(_mm256_add_ps(value, LoadBf16x8(row.residual + at)), kept + at);
        value = LoadBf16x8(kept + at);
      } else if (kept != row.in) {
        StoreBf16x8(value, kept + at);
      }
      sums[half] = _mm256_fmadd_ps(value, value, sums[half]);
    }
  }
  float sum = SumLanes(_mm256_add_ps(sums[0], sums[1]));
  for (; i < row.size; ++i) {
    float value = Value(row.in[i]);
    if (row.add_residual) {
      value += Value(row.residual[i]);
    }
    kept[i] = Rounded(value);
    value = Value(kept[i]);
    sum += value * value;
  }
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(row.size) + row.epsilon);
  const __m256 scales = _mm256_set1_ps(scale);
  for (i = 0; i + 8 <= row.size; i += 8) {
    const __m256 value = _mm256_mul_ps(LoadBf16x8(kept + i), scales);
    StoreBf16x8(_mm256_mul_ps(value, LoadBf16x8(row.gain + i)), row.out + i);
  }
  for (; i < row.size; ++i) {
    row.out[i] = Rounded(Value(kept[i]) * scale * Value(row.gain[i]));
  }
}

}  // namespace lastflop
