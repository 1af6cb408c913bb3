#pragma once

#include "planner/context.h"
#include "planner/expected_steps.h"
#include "planner/rank.h"

namespace lastflop {

// From what the interventions are judged with to the whole ranking: judged, ordered, placed,
// stacked, answered. `steps` are of the context's campaign and machine.
Ranking RankContext(const RankingContext& context, ExpectedSteps& steps,
                    const RankOptions& options);

}  // namespace lastflop
