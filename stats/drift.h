#pragma once

#include <optional>
#include <span>

#include "stats/pair.h"

// How far the samples are from independent ones of a steady device. Pairs are in the order in which
// they were taken, with times that EstimateSpeedup accepts. docs/measuring.md, "Drift and
// autocorrelation".
namespace lastflop {

// Change of the baseline's time within a launch, from its first samples to its last.
struct Drift {
  double relative = 0;        // +0.03: the baseline became 3% slower.
  double standard_error = 0;  // Of `relative`.
};

// Compares the last quarter of each launch's baseline samples with the first, and averages over
// launches. Absent unless some launch has eight pairs or more.
std::optional<Drift> BaselineDrift(std::span<const Pair> pairs);

// Whether the baseline moved by more than `gain` (relative, 0.02 = 2%), and by more than twice the
// noise of the drift itself: the warning beside a claimed gain.
bool DriftExceeds(const Drift& drift, double gain);

// Lag-one autocorrelation of the pairs' log ratios within launches, in [-1, 1]. Absent with fewer
// than three pairs in every launch, or when all ratios are equal.
std::optional<double> LogRatioAutocorrelation(std::span<const Pair> pairs);

// How many independent pairs would tell as much about the mean log ratio of these launches: in
// [1, number of pairs]; 0 without pairs.
double EffectiveSampleSize(std::span<const Pair> pairs);

}  // namespace lastflop
