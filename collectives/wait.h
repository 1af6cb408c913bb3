#pragma once

#include <sched.h>

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lastflop {

enum class WaitOutcome { kDone, kBroken, kTimeout };

struct WaitOptions {
  // The awaited rank may need the core that this one spins on: yield after a short spin.
  bool share_cores = true;
  std::chrono::milliseconds timeout{60'000};
};

inline void SpinPause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits until `done()` without a system call as long as it is near; then looks at `broken()` and
// the clock, and yields the core between looks. A condition that holds wins over a broken gang:
// what a rank published before it ended still counts.
template <typename Done, typename Broken>
WaitOutcome SpinUntil(const WaitOptions& options, Done&& done, Broken&& broken) {
  // About 2 us and 40 us of pauses. A rank on a core of its own is met well inside the latter; on
  // shared cores every spin delays the rank that is waited for.
  const int spins = options.share_cores ? 64 : 1024;
  for (int i = 0; i < spins; ++i) {
    if (done()) {
      return WaitOutcome::kDone;
    }
    SpinPause();
  }
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  while (true) {
    for (int i = 0; i < (options.share_cores ? 1 : 64); ++i) {
      if (done()) {
        return WaitOutcome::kDone;
      }
      SpinPause();
    }
    if (broken()) {
      return done() ? WaitOutcome::kDone : WaitOutcome::kBroken;
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return done() ? WaitOutcome::kDone : WaitOutcome::kTimeout;
    }
    sched_yield();
  }
}

}  // namespace lastflop
