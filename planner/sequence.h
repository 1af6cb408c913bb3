#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/campaign.h"
#include "planner/ranking.h"

namespace lastflop {

struct Sequence {
  std::vector<SequenceStep> steps;
  std::string note;  // What was chosen from what, and how.
  // Expected of all steps together; absent of none and without economics.gpu_hours.
  std::optional<double> net_gpu_hours;
};

// The set of interventions worth building together under budget.effort, in the order to build them.
//
// Candidates are proven faster and placed; one that does not pay alone may pay beside others that
// need the same. `needs` must be in the set (a needed one may be placed without being faster
// itself), `excludes` must not. Two that set the same plan field to different values (sweeps as
// they chose) must not either, unless one needs the other, or both are switchable per batch and
// take no more GPUs: then at most one of them is on at each point. Among the allowed sets the one
// with the largest expected net gain wins: gpu_hours * (1 - sum(w * product(1 - chance * (1 -
// 1/s)))) - cost, products at each point over what is on there, w the points' time shares, s over
// how many times as many GPUs it takes; or the largest saving without economics; ties go to less
// effort. The search is exact up to kMostSetCandidates candidates; beyond these the best by rank
// take part, which the note says. Built in order of place, needed ones first.
//
// An intervention is measured together with what it needs, so its part of the stack is its speedup
// over theirs. The stack is the product of these parts at each point, then the mix: modelled.
Sequence RecommendSequence(std::span<const RankedIntervention> ranked, const Campaign& campaign);

}  // namespace lastflop
