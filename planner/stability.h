#pragma once

#include <cstdint>
#include <vector>

#include "common/campaign.h"
#include "planner/ranking.h"

// How much of a ranking the uncertainty of its inputs leaves standing.
namespace lastflop {

inline constexpr int kStabilityDraws = 1000;

struct StabilityOptions {
  RankingOrder order = RankingOrder::kNetGain;
  double interval_confidence = 0.95;  // Of the speedups' intervals.
  int num_draws = kStabilityDraws;
  uint64_t seed = 1;
};

// Sets RankedIntervention::place_held of everything that has a place: the share of draws in which
// it has that very place. A draw takes each effort from the triangle of its low, likely and high
// hours (once for all that need it) and each proven speedup from a normal distribution of its
// logarithm with the interval's own width on each side; what is not proven counts as 1, as in the
// ranking. `ranked` is sorted, those with a place first; equal keys keep their order.
void SetStability(const Campaign& campaign, const StabilityOptions& options,
                  std::vector<RankedIntervention>& ranked);

// The key that the placed are ordered by, the larger first, from what counts of a speedup
// (CountedPerDevice()) and what it costs and risks with all that it needs. Of RankingOrder::kPareto
// it is the speedup alone: layers are of all together.
double RankingKey(RankingOrder order, double counted, double effort_hours, double chance,
                  const Economics& economics);

}  // namespace lastflop
