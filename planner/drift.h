#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/pool.h"
#include "planner/ranking.h"

namespace lastflop {

// How much the baseline's time moved from the first to the last of its samples at a point, over all
// trials that measured it there: median of the last quarter over the median of the first (32
// samples at most), minus 1. Within launches stats/drift.h tells more; this one is about the
// minutes or hours between them. A single slow sample is no drift.
struct CampaignDrift {
  double relative = 0;
  double standard_error = 0;  // From the median absolute deviation of the samples compared.
};

// Absent under sixteen samples.
std::optional<CampaignDrift> DriftOverCampaign(std::span<const PooledTrial> trials,
                                               int point_index);

// A warning for each point where the drift exceeds the gain that an intervention claims there; it
// names them, and how sure the drift is.
std::vector<std::string> DriftWarnings(const Campaign& campaign,
                                       std::span<const BaselinePoint> baseline);

}  // namespace lastflop
