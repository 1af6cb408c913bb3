#include "planner/figures.h"

#include <cmath>
#include <optional>

#include "stats/judge.h"

namespace lastflop {
namespace {

void SetInterval(const std::optional<Interval>& interval, SpeedupFigure& figure) {
  figure.low.reset();
  figure.high.reset();
  if (interval.has_value()) {
    figure.low = interval->low;
    figure.high = interval->high;
  }
}

}  // namespace

SpeedupFigure FigureOf(const Estimate& estimate) {
  SpeedupFigure figure;
  figure.estimate = estimate.speedup;
  figure.num_pairs = estimate.num_pairs;
  figure.num_launches = estimate.num_launches;
  SetInterval(estimate.interval, figure);
  return figure;
}

SpeedupFigure FamilyFigureOf(const Estimate& estimate, const FamilyVerdict& verdict) {
  SpeedupFigure figure = FigureOf(estimate);
  SetInterval(verdict.interval, figure);
  return figure;
}

Effect EffectOf(const SpeedupFigure& figure, double min_effect) {
  if (!figure.low.has_value() || !figure.high.has_value()) {
    return Effect::kUndecided;
  }
  return JudgeEffect(Interval{.low = std::log(*figure.low), .high = std::log(*figure.high)},
                     min_effect);
}

}  // namespace lastflop
