#pragma once

#include "planner/context.h"
#include "planner/ranking.h"

namespace lastflop {

// Sets predicted_speedup and prediction_error of what was measured over the whole mix: what the
// cost model says of the same trials on the machine that measured them, mixed as they were. Nothing
// is set where it cannot price a point, in warm campaigns, and without the machine's bandwidth; an
// assumption says what the predictions rest on. `imported` may be null.
void PredictMeasured(const RankingContext& context, ImportedRows* imported, Ranking& ranking);

}  // namespace lastflop
