#include "kernels/cpu/flop_probe_builds.h"
#include "kernels/cpu/vector.h"

namespace lastflop {

float MultiplyAddAvx2(int64_t num_rounds) {
  const __m256 factor = _mm256_set1_ps(0.5F);
  const __m256 addend = _mm256_set1_ps(1.0F);
  __m256 sums[kProbeChains];
  for (int64_t chain = 0; chain < kProbeChains; ++chain) {
    sums[chain] = _mm256_set1_ps(static_cast<float>(chain));
  }
  for (int64_t round = 0; round < num_rounds; ++round) {
#pragma GCC unroll 12
    for (int64_t chain = 0; chain < kProbeChains; ++chain) {
      sums[chain] = _mm256_fmadd_ps(sums[chain], factor, addend);
    }
  }
  __m256 sum = sums[0];
  for (int64_t chain = 1; chain < kProbeChains; ++chain) {
    sum = _mm256_add_ps(sum, sums[chain]);
  }
  return SumLanes(sum);
}

}  // namespace lastflop
