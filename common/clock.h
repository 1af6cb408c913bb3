#pragma once

#include <chrono>
#include <cstdint>

namespace lastflop {

// Time as a parameter, so that decisions about deadlines are tested without waiting.
class Clock {
 public:
  virtual ~Clock() = default;

  // Since the epoch, UTC: for rows and logs. May jump.
  virtual int64_t NowMs() const = 0;

  // Never jumps and has no meaning across processes: for deadlines and heartbeats. It goes on while
  // the host sleeps or the process is stopped.
  virtual std::chrono::milliseconds Monotonic() const = 0;
};

// The clocks of this host. Thread-safe.
class SystemClock : public Clock {
 public:
  int64_t NowMs() const override;
  std::chrono::milliseconds Monotonic() const override;
};

}  // namespace lastflop
