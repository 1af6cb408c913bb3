#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/trial.h"
#include "planner/ranking.h"

// Where the time of a step goes.
namespace lastflop {

struct StepBreakdown {
  double step_us = 0;
  std::vector<OpShare> ops;                // By us, descending; the residual is op "unclaimed".
  std::vector<BreakdownShare> categories;  // By us, descending. Sum to step_us.
  double residual_us = 0;
  double overlap_us = 0;  // By how much the parts exceeded the step before they were scaled to it.
  std::string method;
};

// Median over the attempts that carry a breakdown, op by op. What no op claims is booked as
// `host`; parts that sum to more than the step (they ran at the same time) are scaled to it, so a
// share never passes 100%. Absent when no attempt carries one.
std::optional<StepBreakdown> MergeBreakdowns(std::span<const AttemptResult* const> results);

// Whether the step that was broken down is too far (25%: timing every op apart costs some, and no
// more) from the one that was timed to say anything about it. No time: it is not.
bool IsOfAnotherStep(double breakdown_us, double timed_us);

// The average step of serving: points weighted by how many steps their time share holds. A share is
// then the part of serving time. Absent when a point has none. `step_us` returns its time.
std::vector<BreakdownShare> MixBreakdown(std::span<const BaselinePoint> points,
                                         std::optional<double>& step_us);

}  // namespace lastflop
