#pragma once

#include <optional>

#include "common/campaign.h"
#include "planner/ranking.h"

// What a speedup is worth against what it costs, in GPU-hours.
namespace lastflop {

// The chance that an intervention survives production: low 0.95, medium 0.8, high 0.5. An
// assumption, and the only place that has it; every report shows it.
double ChanceOfSuccess(Risk risk);

// Engineer-hours turned into GPU-hours, at the likely effort.
double CostGpuHours(const Effort& effort, const Economics& economics);

// The share of today's GPU-hours that is expected to be saved: (1 - 1/speedup) * chance. `speedup`
// is over how many times as many GPUs the plan takes, here and below; under 1 it costs.
double ExpectedSaving(double speedup, double chance);

// gpu_hours * (1 - 1/speedup) * chance - effort * engineer_hour_in_gpu_hours. The interval is the
// envelope of the speedup's and the effort's: low speedup with high effort, and the reverse.
// `counted` is the speedup that counts for the expectation, which is 1 when none is proven;
// `chance` and `effort` are of everything that was measured together. Absent without
// economics.gpu_hours.
std::optional<Gain> NetGain(const SpeedupFigure& figure, double counted, const Effort& effort,
                            double chance, const Economics& economics);

// The GPU-hours of serving from which the effort pays. Absent when `counted` saves nothing.
std::optional<double> BreakEvenGpuHours(double counted, const Effort& effort, double chance,
                                        const Economics& economics);

}  // namespace lastflop
