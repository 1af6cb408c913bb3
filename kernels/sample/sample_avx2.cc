#include "kernels/cpu/vector.h"
#include "kernels/sample/sample_builds.h"

namespace lastflop {

// Two passes over what the second finds in cache: the largest value, then its first place.
int64_t FirstMaxAvx2(const float* in, int64_t count) {
  __m256 max[4];
  for (__m256& m : max) {
    m = _mm256_set1_ps(-__builtin_inff());
  }
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    for (int j = 0; j < 4; ++j) {
      // max_ps gives its second operand for a NaN in the first.
      max[j] = _mm256_max_ps(_mm256_loadu_ps(in + i + 8 * j), max[j]);
    }
  }
  float best =
      MaxLanes(_mm256_max_ps(_mm256_max_ps(max[0], max[1]), _mm256_max_ps(max[2], max[3])));
  for (; i < count; ++i) {
    best = in[i] > best ? in[i] : best;
  }
  const __m256 wanted = _mm256_set1_ps(best);
  for (i = 0; i + 8 <= count; i += 8) {
    const __m256 is_best = _mm256_cmp_ps(_mm256_loadu_ps(in + i), wanted, _CMP_EQ_OQ);
    if (const int mask = _mm256_movemask_ps(is_best); mask != 0) {
      return i + __builtin_ctz(static_cast<unsigned>(mask));
    }
  }
  for (; i < count; ++i) {
    if (in[i] == best) {
      return i;
    }
  }
  return 0;
}

}  // namespace lastflop
