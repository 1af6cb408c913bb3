#pragma once

#include "planner/context.h"
#include "planner/rank.h"

namespace lastflop {

// From what the interventions are judged with to the whole ranking: judged, ordered, placed,
// stacked, answered.
Ranking RankContext(const RankingContext& context, const RankOptions& options);

}  // namespace lastflop
