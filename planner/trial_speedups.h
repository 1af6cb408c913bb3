#pragma once

#include <map>
#include <string>

#include "common/campaign_results.h"

namespace lastflop {

// Ratio of mean times, baseline over variant, of every trial that has accepted pairs which were not
// throttled: a first impression for lists, without an interval. By trial_id.
std::map<std::string, double> TrialSpeedups(const CampaignResults& results);

}  // namespace lastflop
