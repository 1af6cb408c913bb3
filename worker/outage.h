#pragma once

#include <chrono>
#include <map>
#include <string>

namespace lastflop {

// Which of many failed connections are worth a line: the first, each new reason, and each reason
// again a minute after it was last said. Not thread-safe.
class Outage {
 public:
  using Clock = std::chrono::steady_clock;

  // Whether to say that a connection failed at `now` for `reason`.
  bool ShouldSay(const std::string& reason, Clock::time_point now);

  // The coordinator was reached: what fails next is news again.
  void End() { said_at_.clear(); }

 private:
  std::map<std::string, Clock::time_point> said_at_;
};

}  // namespace lastflop
