#include "kernels/cpu/flop_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <vector>

#include "kernels/cpu/flop_probe_builds.h"

namespace lastflop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRuns = 120;
constexpr int64_t kRounds = 50'000;         // About 0.25 ms of AVX2 at 2.5 GHz.
constexpr int64_t kPortableRounds = 6'000;  // Which is some eight times slower.

}  // namespace

float MultiplyAddPortable(int64_t num_rounds) {
  float sums[kProbeChains * kProbeLanes] = {};
  for (int64_t round = 0; round < num_rounds; ++round) {
    for (float& sum : sums) {
      sum = sum * 0.5F + 1.0F;
    }
  }
  float sum = 0;
  for (const float one : sums) {
    sum += one;
  }
  return sum;
}

double MeasureFlopPerMicro(ThreadPool& pool) {
  int64_t rounds = kPortableRounds;
  float (*run)(int64_t) = &MultiplyAddPortable;
#ifdef LASTFLOP_HAVE_AVX2
  if (pool.isa() == VectorIsa::kAvx2) {
    rounds = kRounds;
    run = &MultiplyAddAvx2;
  }
#endif
  std::atomic<float> sink = 0;
  // Each thread's own: on a busy host all are rarely left alone at once.
  std::vector<double> least_us(static_cast<size_t>(pool.num_threads()),
                               std::numeric_limits<double>::infinity());
  for (int i = 0; i < kRuns; ++i) {
    pool.RunOnAll([&](int thread) {
      const Clock::time_point start = Clock::now();
      sink.store(run(rounds), std::memory_order_relaxed);
      const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
      double& least = least_us[static_cast<size_t>(thread)];
      least = std::min(least, us);
    });
  }
  const auto flop = static_cast<double>(2 * kProbeChains * kProbeLanes * rounds);
  double flop_per_us = 0;
  for (const double us : least_us) {
    flop_per_us += flop / us;
  }
  return flop_per_us;
}

}  // namespace lastflop
