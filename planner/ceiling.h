#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "planner/breakdown.h"
#include "step/make_step.h"
#include "step/op.h"

namespace lastflop {

// The best a patch could do at one point.
struct Ceiling {
  std::optional<double> speedup;  // Of what was asked for: the step, or a part of it.
  std::string arithmetic;         // How it comes about, or why there is none.
};

// Both arms' steps at one point on the slowest rank, with what is needed to bound the variant's.
struct CeilingInput {
  Step baseline;
  Step variant;
  std::vector<LayerKind> layer_kinds;  // The model's.
  Machine machine;
  StepBreakdown breakdown;  // Measured, of the baseline.
  double draft_us = 0;      // Speculation: what the drafts of a step cost.
  // A pin: what reading the bytes that it may hold takes, each once a step. 0 without one.
  double pin_us = 0;
  // What changed fields reach beyond ops of another shape or work (planner/field_reach.h), by name.
  std::set<std::string> bounded;  // Down to their floors.
  std::set<std::string> hidden;   // To nothing, behind others.
  bool gaps_may_go = false;       // All time that no op claims.
  bool is_all_reached = false;    // Nothing beyond these can change.
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

// Expected routing of points, each sampled once. One campaign; one thread at a time.
class ExpectedLoads {
 public:
  // `tokens` of `point` over `expert_groups`, as the rank sees them that bounds a step from below.
  // Where each rank has a device, that is the most loaded one; ranks that share a host's memory
  // bandwidth are done when all of them together are, so it is the mean one. `point` is the same
  // object for the same point.
  absl::StatusOr<ExpertLoad> OfBoundingRank(const Model& model, const Point& point, int64_t tokens,
                                            int64_t expert_groups, int64_t opportunistic_keep,
                                            bool shares_bandwidth);

 private:
  std::map<std::tuple<const Point*, int64_t, int64_t, int64_t, bool>, ExpertLoad> loads_;
};

// Builds the input from plans: expected routing, the rank that bounds a step. The message says why
// there is no ceiling: a plan without a step, a changed field that may reach anything
// (planner/field_reach.h), or another number of ranks, whose steps do not compare op by op.
absl::StatusOr<CeilingInput> PrepareCeiling(const Campaign& campaign, const Machine& machine,
                                            const Plan& baseline, const Plan& variant,
                                            const Point& point, const StepBreakdown& breakdown,
                                            ExpectedLoads& loads);

}  // namespace lastflop
