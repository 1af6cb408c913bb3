#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "planner/ranking.h"

namespace lastflop {

// One point's part of a mix.
struct MixPart {
  double time_share = 0;  // Of today's serving time.
  SpeedupFigure speedup;
};

// The speedup of serving as a whole: 1 / sum(time_share * t_variant / t_baseline), with shares
// taken relative to their sum. The points are measured apart, so the interval of the sum is made
// from each part's distance to its own ends (the method of variance estimates recovery), which
// keeps skewed intervals: towards slower as distances in time, towards faster as distances in its
// log, each weighted with its part of the sum. A time can fall by no more than itself, so distances
// of wide intervals added up in time would end well above zero however wide they are, and equal
// plans would be called slower. Distances of predicted points add up as they are: a model that is
// wrong at one point is wrong at the next. No interval when a part has none.
// Absent for no parts.
std::optional<SpeedupFigure> MixSpeedup(std::span<const MixPart> parts);

// A part that runs the baseline as it is: exactly 1, with no doubt about it.
SpeedupFigure UnchangedSpeedup();

}  // namespace lastflop
