#include "planner/economics.h"

#include <algorithm>
#include <cmath>

namespace lastflop {
namespace {

// Below it an interval says nothing about the speedup, and hours lost would run to any number.
constexpr double kLeastSpeedup = 0.001;

bool HasEnds(const SpeedupFigure& figure) {
  return figure.low.has_value() && figure.high.has_value() && *figure.low >= kLeastSpeedup &&
         std::isfinite(*figure.high);
}

}  // namespace

double ChanceOfSuccess(Risk risk) {
  switch (risk) {
    case Risk::kLow:
      return 0.95;
    case Risk::kMedium:
      return 0.8;
    case Risk::kHigh:
      return 0.5;
  }
  return 0;
}

double CostGpuHours(const Effort& effort, const Economics& economics) {
  return effort.likely_hours * economics.engineer_hour_in_gpu_hours;
}

double ExpectedSaving(double speedup, double chance) { return (1 - 1 / speedup) * chance; }

std::optional<Gain> NetGain(const SpeedupFigure& figure, double counted, const Effort& effort,
                            double chance, const Economics& economics) {
  if (!economics.gpu_hours.has_value()) {
    return std::nullopt;
  }
  const double rate = economics.engineer_hour_in_gpu_hours;
  Gain gain;
  gain.net_gpu_hours =
      *economics.gpu_hours * ExpectedSaving(counted, chance) - CostGpuHours(effort, economics);
  if (HasEnds(figure)) {
    // An unproven speedup counts as 1, which may lie just outside its interval.
    const double low = std::min(*figure.low, counted);
    const double high = std::max(*figure.high, counted);
    gain.low = *economics.gpu_hours * ExpectedSaving(low, chance) - effort.high_hours * rate;
    gain.high = *economics.gpu_hours * ExpectedSaving(high, chance) - effort.low_hours * rate;
  }
  return gain;
}

std::optional<double> BreakEvenGpuHours(double counted, const Effort& effort, double chance,
                                        const Economics& economics) {
  const double saving = ExpectedSaving(counted, chance);
  if (saving <= 0) {
    return std::nullopt;
  }
  return CostGpuHours(effort, economics) / saving;
}

}  // namespace lastflop
