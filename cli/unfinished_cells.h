#pragma once

#include <cstdint>

#include "common/campaign_results.h"
#include "planner/compare.h"

namespace lastflop {

// Cells that A measured and of which nothing can be said because a trial of B that would have
// measured them too has not ended: it was cancelled, waits, runs or lost its workers.
int64_t CountUnfinishedCells(const CampaignComparison& comparison, const CampaignResults& b);

}  // namespace lastflop
