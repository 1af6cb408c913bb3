#include "planner/breakdown.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lastflop {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

struct OpSamples {
  std::vector<double> us;
  std::vector<double> floor_us;
};
using OpKey = std::pair<OpCategory, std::string>;

bool HasBreakdown(const AttemptResult& result) {
  return !result.failure.has_value() && !result.breakdown.empty() &&
         std::isfinite(result.breakdown_step_us) && result.breakdown_step_us > 0;
}

std::map<OpKey, OpSamples> CollectOps(std::span<const AttemptResult* const> results) {
  std::map<OpKey, OpSamples> ops;
  for (const AttemptResult* result : results) {
    if (!HasBreakdown(*result)) {
      continue;
    }
    std::map<OpKey, std::pair<double, double>> sums;
    for (const BreakdownEntry& entry : result->breakdown) {
      auto& [us, floor_us] = sums[{entry.category, entry.op}];
      us += entry.us;
      floor_us += entry.floor_us;
    }
    for (const auto& [key, sum] : sums) {
      ops[key].us.push_back(sum.first);
      ops[key].floor_us.push_back(sum.second);
    }
  }
  return ops;
}

template <typename Share>
void SortByTime(std::vector<Share>& shares) {
  std::stable_sort(shares.begin(), shares.end(),
                   [](const Share& a, const Share& b) { return a.us > b.us; });
}

std::vector<BreakdownShare> SumCategories(const std::vector<OpShare>& ops) {
  std::map<OpCategory, BreakdownShare> sums;
  for (const OpShare& op : ops) {
    BreakdownShare& sum = sums[op.category];
    sum.category = op.category;
    sum.us += op.us;
    sum.share += op.share;
  }
  std::vector<BreakdownShare> categories;
  for (const auto& [category, sum] : sums) {
    categories.push_back(sum);
  }
  SortByTime(categories);
  return categories;
}

// Makes the parts sum to the step.
void Close(StepBreakdown& breakdown) {
  constexpr double kRounding = 1e-12;  // Of a step whose parts are its sum: a prediction's.
  double sum = 0;
  for (const OpShare& op : breakdown.ops) {
    sum += op.us;
  }
  if (std::abs(sum - breakdown.step_us) <= kRounding * breakdown.step_us) {
    breakdown.step_us = sum;
  }
  if (sum > breakdown.step_us) {
    breakdown.overlap_us = sum - breakdown.step_us;
    for (OpShare& op : breakdown.ops) {
      op.us *= breakdown.step_us / sum;
    }
  } else if (sum < breakdown.step_us) {
    breakdown.residual_us = breakdown.step_us - sum;
    breakdown.ops.push_back({.category = OpCategory::kHost,
                             .op = "unclaimed",
                             .us = breakdown.residual_us,
                             .share = 0,
                             .floor_us = std::nullopt});
  }
  for (OpShare& op : breakdown.ops) {
    op.share = op.us / breakdown.step_us;
  }
}

}  // namespace

std::optional<StepBreakdown> MergeBreakdowns(std::span<const AttemptResult* const> results) {
  StepBreakdown breakdown;
  std::vector<double> step_us;
  for (const AttemptResult* result : results) {
    if (HasBreakdown(*result)) {
      step_us.push_back(result->breakdown_step_us);
      breakdown.method = result->breakdown_method;
    }
  }
  if (step_us.empty()) {
    return std::nullopt;
  }
  breakdown.step_us = Median(step_us);
  for (auto& [key, samples] : CollectOps(results)) {
    OpShare op;
    op.category = key.first;
    op.op = key.second;
    op.us = Median(samples.us);
    // A floor of 0 means that the machine has no curve for it.
    const double floor_us = Median(samples.floor_us);
    if (floor_us > 0) {
      op.floor_us = floor_us;
    }
    if (std::isfinite(op.us) && op.us >= 0) {
      breakdown.ops.push_back(std::move(op));
    }
  }
  Close(breakdown);
  SortByTime(breakdown.ops);
  breakdown.categories = SumCategories(breakdown.ops);
  return breakdown;
}

bool IsOfAnotherStep(double breakdown_us, double timed_us) {
  constexpr double kLargeRatio = 1.25;
  return breakdown_us > 0 && timed_us > 0 &&
         std::max(breakdown_us / timed_us, timed_us / breakdown_us) > kLargeRatio;
}

std::vector<BreakdownShare> MixBreakdown(std::span<const BaselinePoint> points,
                                         std::optional<double>& step_us) {
  step_us.reset();
  double total_share = 0;
  double steps = 0;  // Per microsecond of serving.
  std::map<OpCategory, double> shares;
  for (const BaselinePoint& point : points) {
    if (point.breakdown.empty()) {
      return {};
    }
    total_share += point.time_share;
    steps += point.time_share / point.breakdown_step_us;
    for (const BreakdownShare& part : point.breakdown) {
      shares[part.category] += point.time_share * part.share;
    }
  }
  if (!(total_share > 0)) {
    return {};
  }
  step_us = total_share / steps;
  std::vector<BreakdownShare> mix;
  for (const auto& [category, share] : shares) {
    mix.push_back(
        {.category = category, .us = share / total_share * *step_us, .share = share / total_share});
  }
  SortByTime(mix);
  return mix;
}

}  // namespace lastflop
