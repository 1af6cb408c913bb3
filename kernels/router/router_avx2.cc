#include <cstring>

#include "kernels/cpu/vector.h"
#include "kernels/router/router_builds.h"

namespace lastflop {

float ExpSumAvx2(const float* in, int64_t count, float max) {
  const __m256 shift = _mm256_set1_ps(max);
  __m256 sum = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    sum = _mm256_add_ps(sum, Exp(_mm256_sub_ps(_mm256_loadu_ps(in + i), shift)));
  }
  if (i < count) {
    float tail[8];
    for (float& value : tail) {
      value = -__builtin_inff();
    }
    std::memcpy(tail, in + i, static_cast<size_t>(count - i) * sizeof(float));
    sum = _mm256_add_ps(sum, Exp(_mm256_sub_ps(_mm256_loadu_ps(tail), shift)));
  }
  return SumLanes(sum);
}

void SigmoidAvx2(const float* in, int64_t count, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const auto sigmoid = [&](__m256 value) {
    const __m256 exp = Exp(_mm256_sub_ps(_mm256_setzero_ps(), value));
    return _mm256_div_ps(one, _mm256_add_ps(one, exp));
  };
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    _mm256_storeu_ps(out + i, sigmoid(_mm256_loadu_ps(in + i)));
  }
  if (i < count) {
    float tail[8] = {};
    const auto bytes = static_cast<size_t>(count - i) * sizeof(float);
    std::memcpy(tail, in + i, bytes);
    _mm256_storeu_ps(tail, sigmoid(_mm256_loadu_ps(tail)));
    std::memcpy(out + i, tail, bytes);
  }
}

}  // namespace lastflop
