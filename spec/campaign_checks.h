#pragma once

#include <vector>

#include "common/campaign.h"
#include "spec/campaign_reader.h"
#include "spec/diagnostics.h"
#include "spec/intervention_reader.h"
#include "spec/yaml_value.h"

namespace lastflop {

// What can be said of a campaign only when all of it is read, with the hooks: an infeasible
// baseline, claims about ops that do not exist and `quality: exact` of a lossy patch are errors;
// infeasible interventions, choices and points, and patches of which nothing has an effect, are
// noted in the campaign, `quality` is set where
// the file leaves it out.
void CheckCampaign(const CampaignHooks& hooks, const YamlValue& root,
                   const std::vector<InterventionSource>& sources, Campaign& campaign,
                   Diagnostics& diagnostics);

}  // namespace lastflop
