#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "planner/expected_steps.h"

// What the ceilings decide before an intervention's own trials run.
namespace lastflop {

struct PrunedTrial {
  size_t trial = 0;    // Index into CampaignResults::trials.
  std::string reason;  // The arithmetic, against measure.min_effect.
};

// A claim that is above its ceiling; the intervention is measured all the same.
struct ImpossibleClaim {
  std::string intervention_id;
  std::string reason;
};

struct PruneDecision {
  std::vector<PrunedTrial> trials;
  std::vector<ImpossibleClaim> impossible;
};

// Whether the trials of interventions should wait: ceilings are asked for (measure.prune and
// measure.breakdown), and some baseline has neither an accepted attempt nor ended.
bool AwaitsBaseline(const CampaignResults& results);

// Which trials that never ran need not run, once AwaitsBaseline() is over: the ceiling in the mix
// is under measure.min_effect for what is on or off for a whole deployment, the ceiling at its
// point for what is switchable per batch. Stays: what has no ceiling at a point, and what another
// intervention needs (it is measured together with that one). Nothing without measure.prune.
PruneDecision DecidePruning(const CampaignResults& results);

// The same with steps of the campaign and machine of `results` that others use as well.
PruneDecision DecidePruning(const CampaignResults& results, ExpectedSteps& steps);

}  // namespace lastflop
