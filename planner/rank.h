#pragma once

#include <string>

#include "common/campaign_results.h"
#include "planner/ranking.h"

namespace lastflop {

class ImportedRows;  // planner/cost/imported_rows.h

struct RankOptions {
  RankingOrder order = RankingOrder::kNetGain;
  ImportedRows* imported = nullptr;  // What predictions rest on beside curves; outlives the call.
};

// Turns everything known of a campaign into its ranking. Pure; a campaign that still runs gives a
// ranking of what is done, the rest stands as not_run.
//
// Order of the placed: what `options.order` says, largest first; among equals larger impact, less
// effort, lower tier, then id. A speedup that is not proven (effect `same` or `undecided`) counts
// as 1.0, so noise orders nothing. Without economics.gpu_hours there is no net gain and the order
// is impact. Unplaced ones follow: lossy beyond budget.max_error in the same order, then those
// without a total, by standing and id.
Ranking MakeRanking(const CampaignResults& results, const RankOptions& options = {});

// The best proven speedup so far over all points, for progress: "fused-moe 1.21x at decode b1
// c4096"; "" while nothing is `faster` at a confidence that holds for all trials of the campaign
// together. Looks at the few largest only, and so takes milliseconds.
std::string BestSoFar(const CampaignResults& results);

}  // namespace lastflop
