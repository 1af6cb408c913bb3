#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "common/machine.h"
#include "common/model.h"
#include "common/plan.h"
#include "planner/breakdown.h"
#include "planner/expected_steps.h"
#include "step/op.h"

namespace lastflop {

// The best a patch could do at one point.
struct Ceiling {
  std::optional<double> speedup;  // Of what was asked for: the step, or a part of it.
  std::string arithmetic;         // How it comes about, or why there is none.
};

// Both arms' steps at one point on the slowest rank, with what is needed to bound the variant's.
struct CeilingInput {
  const Step* baseline = nullptr;  // Outlives this.
  Step variant;
  std::span<const LayerKind> layer_kinds;    // The model's, which outlives this.
  const Machine* machine = nullptr;          // What a rank has of it. Outlives this.
  const StepBreakdown* breakdown = nullptr;  // Measured, of the baseline. Outlives this.
  double draft_share = 0;  // Speculation: what the drafts of a step cost, of the baseline's step.
  // A pin: what reading the bytes that it may hold takes, each once a step. 0 without one.
  double pin_us = 0;
  // What changed fields reach beyond ops of another shape or work (planner/field_reach.h).
  std::set<OpCategory> bounded;  // Down to their floors.
  std::set<OpCategory> hidden;   // To nothing, behind others: those that the baseline has.
  bool gaps_may_go = false;      // All time that no op claims.
  bool is_all_reached = false;   // Nothing beyond these can change.
};

// Ceiling of `of` (step | moe | op:NAME), as claims name parts; `moe` is the categories moe and
// dequant.
//
//   T / (T - (touched - floor)) * tokens(variant) / tokens(baseline)
//
// An op is touched when the patch changes its shape in any layer, adds or removes it; `touched` is
// its measured time, `floor` the least time of what the variant runs in its place
// (step/floors.h), at most `touched`; 0 of what overlap may hide. Time that no op claims may shrink
// with the share of ops that are touched, or go where the patch is about it; a pin of L2 saves its
// reads, each pinned byte once a step; everything else stays. 1 where the step has nothing that the
// changed fields act on. No ceiling when no op differs though the patch is about ops.
Ceiling MakeCeiling(const CeilingInput& input, absl::string_view of);

// Builds the input from plans: expected routing, the rank that bounds a step. The message says why
// there is no ceiling: a plan without a step, a changed field that may reach anything
// (planner/field_reach.h), or another number of ranks, whose steps do not compare op by op. Point,
// breakdown and steps outlive the input, which holds until the next baseline is asked of `steps`.
absl::StatusOr<CeilingInput> PrepareCeiling(const Plan& baseline, const Plan& variant,
                                            const Point& point, const StepBreakdown& breakdown,
                                            ExpectedSteps& steps);

}  // namespace lastflop
