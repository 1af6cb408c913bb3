#pragma once

#include "common/words.h"
#include "planner/ranking.h"
#include "stats/estimate.h"
#include "stats/multiplicity.h"

namespace lastflop {

// An estimate as a figure; its interval is at the estimate's own confidence.
SpeedupFigure FigureOf(const Estimate& estimate);

// The same estimate with the interval that the family of comparisons allows it.
SpeedupFigure FamilyFigureOf(const Estimate& estimate, const FamilyVerdict& verdict);

// Effect of a figure made from others, from its own interval; undecided without one.
Effect EffectOf(const SpeedupFigure& figure, double min_effect);

}  // namespace lastflop
