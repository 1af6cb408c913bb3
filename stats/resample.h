#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stats/pair.h"

// Variances of the log of a ratio of mean times, by what is drawn anew: launches, draws, pairs.
// docs/measuring.md, "Standard error".
namespace lastflop {

// Sums over the pairs of one launch or one draw: all that a resampled ratio of means needs.
struct PairSums {
  double baseline_us = 0;
  double variant_us = 0;
  int num_pairs = 0;
};

// The pairs with both times divided by the number of pairs of their launch, so that every launch
// weighs the same in a sum, however long its slice was. Everything below takes such pairs: t on few
// launches holds for launches of unequal noise where they weigh the same, and does not otherwise.
std::vector<Pair> WeighLaunchesEqually(std::span<const Pair> pairs);

// In order of first appearance.
std::vector<PairSums> SumByLaunch(std::span<const Pair> pairs);
std::vector<PairSums> SumByDraw(std::span<const Pair> pairs);

// Variance of log(sum of baseline / sum of variant) over fresh launches: the delete-one jackknife.
// Needs two launches or more.
double LaunchVariance(std::span<const PairSums> launches);

// The same over fresh draws: a bootstrap of circular blocks of consecutive draws, so that
// neighbours that share a slow moment stay together. Needs two draws and two replicates or more.
// The same seed gives the same result.
double DrawVariance(std::span<const PairSums> draws, int num_replicates, uint64_t seed);

// The same over independent pairs, linearized. Needs two pairs or more.
double PairVariance(std::span<const Pair> pairs);

}  // namespace lastflop
