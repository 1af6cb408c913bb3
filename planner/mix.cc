#include "planner/mix.h"

#include <algorithm>
#include <cmath>

namespace lastflop {

std::optional<SpeedupFigure> MixSpeedup(std::span<const MixPart> parts) {
  double total_share = 0;
  for (const MixPart& part : parts) {
    total_share += part.time_share;
  }
  if (!(total_share > 0)) {
    return std::nullopt;
  }
  double time = 0;
  // Distances from the sum to its ends: squares where errors are each point's own, and sums where a
  // model is wrong at all points alike. Upwards in time, downwards in the log of time.
  double log_below = 0;
  double above = 0;
  double modelled_log_below = 0;
  double modelled_above = 0;
  bool has_interval = true;
  SpeedupFigure mix;
  for (const MixPart& part : parts) {
    const double share = part.time_share / total_share;
    const double ratio = 1 / part.speedup.estimate;
    time += share * ratio;
    if (part.speedup.low.has_value() && part.speedup.high.has_value()) {
      const double down = share * ratio * std::log(*part.speedup.high / part.speedup.estimate);
      const double up = share * (1 / *part.speedup.low - ratio);
      if (part.speedup.origin == Origin::kMeasured) {
        log_below += down * down;
        above += up * up;
      } else {
        modelled_log_below += down;
        modelled_above += up;
      }
    } else {
      has_interval = false;
    }
    mix.num_pairs += part.speedup.num_pairs;
    mix.num_launches = std::max(mix.num_launches, part.speedup.num_launches);
    if (part.speedup.origin != Origin::kMeasured) {
      mix.origin = part.speedup.origin;
    }
  }
  mix.estimate = 1 / time;
  if (has_interval) {
    mix.low = 1 / (time + std::hypot(std::sqrt(above), modelled_above));
    mix.high = std::exp(std::hypot(std::sqrt(log_below), modelled_log_below) / time) / time;
  }
  return mix;
}

SpeedupFigure UnchangedSpeedup() { return {.estimate = 1, .low = 1, .high = 1}; }

}  // namespace lastflop
