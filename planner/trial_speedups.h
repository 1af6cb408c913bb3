#pragma once

#include <map>
#include <string>

#include "common/campaign_results.h"

namespace lastflop {

// Ratio of mean times, baseline over variant, of every trial that has accepted pairs: the estimate
// of stats/estimate.h (launches weigh the same, throttled pairs are dropped up to the cap) without
// its interval. By trial_id.
std::map<std::string, double> TrialSpeedups(const CampaignResults& results);

}  // namespace lastflop
