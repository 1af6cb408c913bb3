#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "planner/pool.h"

namespace lastflop {

// What an intervention is judged on at one point.
struct ChosenTrial {
  const PooledTrial* trial = nullptr;  // Outlives this; nullptr: the campaign has no such trial.
  std::string choice;                  // Of the sweep; "" without one, or where none of it ran.
  std::vector<Pair> pairs;             // The ones to report; empty unless measured.
};

struct SweepChoice {
  std::vector<ChosenTrial> points;  // One per point of the campaign.
  std::string choice;               // Values of all points; "" without a sweep or measurement.
  std::string method;               // "" when there was nothing to choose.
};

// Picks the value of a `try` sweep. A winner that is picked and reported on the same samples looks
// better than it is, so what is reported of a launch is the value that won on the other launches
// (cross-fitting; with a single launch its even and odd pairs take turns). The value that is named
// won on all of them; the method says when the launches disagree. One value for all points, the
// best in the mix among those measured over most of the time; with `switchable: per_batch` each
// point has its own. Without a sweep everything is reported. Where
// no value was measured none is named: a sweep that never ran has no best. Ties go to the value
// listed first.
SweepChoice ChooseTrials(const CampaignResults& results, std::span<const PooledTrial> trials,
                         const Intervention& intervention);

}  // namespace lastflop
