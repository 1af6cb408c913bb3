#pragma once

#include <optional>
#include <span>

#include "planner/ceiling.h"
#include "planner/context.h"
#include "planner/pool.h"
#include "planner/ranking.h"

namespace lastflop {

// A point while its intervention is judged: what is printed, and what the claim is held against.
struct JudgedPoint {
  PointResult result;
  const PooledTrial* trial = nullptr;  // nullptr: the campaign has none here.
  Ceiling claim_ceiling;               // Of the part that is claimed, if any is.
};

// Sets claim_verdict and claim_reason from the points where it is claimed, and there only. A claim
// about a part (moe, op:NAME) is held against that part's time, never against the step's.
void SetClaim(const RankingContext& context, std::span<const JudgedPoint> points,
              RankedIntervention& ranked);

}  // namespace lastflop
