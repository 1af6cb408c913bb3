#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/pool.h"
#include "planner/ranking.h"

namespace lastflop {

// How much the baseline's time moved from the first to the last of its samples at a point, over all
// trials that measured it there: mean of the last attempt's baseline arm over the first one's,
// minus 1. With a single attempt, its last third over its first. Within launches stats/drift.h
// tells more; this one is about the hours between them.
struct CampaignDrift {
  double relative = 0;
  double standard_error = 0;  // From the scatter of the samples compared.
};

// Absent under six samples.
std::optional<CampaignDrift> DriftOverCampaign(std::span<const PooledTrial> trials,
                                               int point_index);

// A warning for each claim whose gain is smaller than the drift at a point where it is claimed,
// where the drift is more than twice its own standard error.
std::vector<std::string> DriftWarnings(const Campaign& campaign,
                                       std::span<const BaselinePoint> baseline);

}  // namespace lastflop
