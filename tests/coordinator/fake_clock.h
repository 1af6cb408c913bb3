#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "common/clock.h"

namespace lastflop {

// Time that goes on when it is told to. Thread-safe.
class FakeClock : public Clock {
 public:
  int64_t NowMs() const override { return 1'700'000'000'000 + ms_; }
  std::chrono::milliseconds Monotonic() const override { return std::chrono::milliseconds(ms_); }
  void Advance(std::chrono::milliseconds duration) { ms_ += duration.count(); }

 private:
  std::atomic<int64_t> ms_{1000};
};

}  // namespace lastflop
