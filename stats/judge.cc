#include "stats/judge.h"

#include <cmath>

namespace lastflop {

Effect JudgeEffect(const Interval& log_ratio, double min_effect) {
  const double band = std::log1p(min_effect);
  if (log_ratio.low > band) {
    return Effect::kFaster;
  }
  if (log_ratio.high < -band) {
    return Effect::kSlower;
  }
  // `same` needs evidence: the whole interval inside the band, not merely around zero.
  if (log_ratio.low > -band && log_ratio.high < band) {
    return Effect::kSame;
  }
  return Effect::kUndecided;
}

Effect JudgeEffect(const Estimate& estimate, double min_effect) {
  if (!estimate.interval) {
    return Effect::kUndecided;
  }
  return JudgeEffect(
      Interval{.low = std::log(estimate.interval->low), .high = std::log(estimate.interval->high)},
      min_effect);
}

}  // namespace lastflop
