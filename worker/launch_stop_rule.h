#pragma once

#include "common/attempt.h"
#include "common/campaign.h"
#include "worker/stop_rule.h"

namespace lastflop {

// The stopping rule of one launch's sampling for `attempt`: stats/stopping.h's slice rule. It may
// be asked after every pair.
StopRule MakeLaunchStopRule(const AttemptSpec& attempt, const MeasureOptions& measure);

}  // namespace lastflop
