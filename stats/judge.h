#pragma once

#include "common/words.h"
#include "stats/estimate.h"

// From an interval to the word of the column `effect`. docs/measuring.md, "Effect".
namespace lastflop {

// `log_ratio` is of the log of baseline over variant; `min_effect` is relative (0.01 = 1%), >= 0.
Effect JudgeEffect(const Interval& log_ratio, double min_effect);

// The same from an estimate's interval of the speedup; undecided without one.
Effect JudgeEffect(const Estimate& estimate, double min_effect);

}  // namespace lastflop
