#pragma once

#include "common/campaign_summary.h"

namespace lastflop {

// What a command that saw a campaign to its end exits with: unfinished when there is something to
// resume, trials that ended as lost_out among it.
int ExitCodeOf(const CampaignSummary& summary);

}  // namespace lastflop
