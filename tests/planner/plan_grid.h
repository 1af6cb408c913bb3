#pragma once

#include <cstdint>

#include "common/campaign.h"

namespace lastflop {

// A campaign for a preview: Kimi-K2.5 at TP8 on eight H200s, `num_interventions` different patches
// of everything that curves price, `num_points` decode points that differ in batch and context. The
// same in every run.
Campaign PlanGrid(int64_t num_interventions, int64_t num_points);

}  // namespace lastflop
