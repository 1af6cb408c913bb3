#pragma once

#include "common/campaign_results.h"
#include "planner/rank.h"

namespace lastflop {

// The ranking of a campaign with rounds: the interventions against the campaign's own baseline, as
// in a campaign of one round, but what was confirmed in the first round has the figures of its
// confirmation; then what each round accepted, and the stack of it all.
Ranking RankRounds(const CampaignResults& results, const RankOptions& options);

}  // namespace lastflop
