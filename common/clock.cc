#include "common/clock.h"

#include <ctime>

namespace lastflop {

int64_t SystemClock::NowMs() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::chrono::milliseconds SystemClock::Monotonic() const {
  timespec now{};
  // Unlike CLOCK_MONOTONIC it counts a suspended host's time, in which no heartbeat came.
  clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec));
}

}  // namespace lastflop
