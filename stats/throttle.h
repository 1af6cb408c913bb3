#pragma once

#include <optional>
#include <span>
#include <vector>

#include "stats/pair.h"

// What throttling did to a trial. docs/measuring.md, "Throttling".
namespace lastflop {

// The pairs that an estimate uses.
struct KeptPairs {
  std::vector<Pair> pairs{};
  int num_dropped = 0;
  double throttled_share = 0;  // Of all pairs.
  // More pairs than the cap were throttled, so all were kept: the rest would be a selection of the
  // cool moments, and a device that always throttles is measured as it runs.
  bool is_over_cap = false;
};

// Drops throttled pairs whole, unless their share exceeds `max_dropped_share`.
KeptPairs DropThrottled(std::span<const Pair> pairs, double max_dropped_share);

struct ThrottleCount {
  int num_samples = 0;
  int num_throttled = 0;  // Of num_samples.
};

struct ThrottleShares {
  std::optional<double> baseline;  // Absent without samples.
  std::optional<double> variant;
  // The arms throttle differently, beyond chance (Fisher's exact test at 5%): the difference in
  // their times is partly one of power.
  bool is_power_limited = false;
};

ThrottleShares CompareThrottle(const ThrottleCount& baseline, const ThrottleCount& variant);

// Of all pairs. Absent when a throttled pair does not say which arm it was.
ThrottleShares CompareThrottle(std::span<const Pair> pairs);

}  // namespace lastflop
