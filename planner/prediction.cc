#include "planner/prediction.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "planner/cost/find_in_turn.h"
#include "planner/cost/step_notes.h"
#include "planner/mix.h"

namespace lastflop {
namespace {

// Square of the half width that an op's time is known to.
double Spread(const TimeEstimate& time) {
  const double half = std::max(time.high_us - time.us, time.us - time.low_us);
  return half * half;
}

// Of what no op shows (overlap, the host, drafts): nothing was fitted to it. An assumption.
constexpr double kUnfittedSpread = 0.5;

// How far the difference of the steps may be off, 0 when they are priced alike; and where the
// prices that make it are from.
struct DifferenceDoubt {
  double spread_us = 0;
  Origin origin = Origin::kModelled;
};

DifferenceDoubt DoubtOf(const StepPrediction& baseline, const StepPrediction& variant) {
  DifferenceDoubt doubt;
  double sum = 0;
  double rest_us = variant.step.us - baseline.step.us;
  const auto add = [&](const TimeEstimate& time) {
    doubt.origin = std::max(doubt.origin, time.origin);
    sum += Spread(time);
  };
  const size_t num_ops = variant.ops.size();
  std::vector<bool> is_met(num_ops, false);
  size_t next = 0;
  for (const PredictedOp& op : baseline.ops) {
    const size_t at =
        FindInTurn(num_ops, next, [&](size_t i) { return variant.ops[i].op == op.op; });
    const PredictedOp* other = nullptr;
    if (at < num_ops) {
      other = &variant.ops[at];
      is_met[at] = true;
    }
    if (other != nullptr && other->time.us == op.time.us) {
      continue;
    }
    add(op.time);
    rest_us += op.time.us;
    if (other != nullptr) {
      add(other->time);
      rest_us -= other->time.us;
    }
  }
  for (size_t i = 0; i < num_ops; ++i) {
    if (!is_met[i]) {
      add(variant.ops[i].time);
      rest_us -= variant.ops[i].time.us;
    }
  }
  doubt.spread_us = std::sqrt(sum) + kUnfittedSpread * std::abs(rest_us);
  return doubt;
}

// The changed fields that no curve prices, whatever else the patch changes.
std::string PathsWithoutACurve(const TrialSpec& spec) {
  std::vector<std::string> paths;
  for (const PlanDifference& one : DiffPlans(spec.baseline, spec.variant)) {
    if (!HasACurve(one.path, one.from) || !HasACurve(one.path, one.to)) {
      paths.push_back(absl::StrCat(one.path, " (", one.from, " to ", one.to, ")"));
    }
  }
  return absl::StrJoin(paths, ", ");
}

// Whether all that the patch changes is left out at the point: prefill drafts nothing.
bool IsOffAt(const TrialSpec& spec, const Point& point) {
  if (point.phase != Phase::kPrefill) {
    return false;
  }
  const std::vector<PlanDifference> changed = DiffPlans(spec.baseline, spec.variant);
  return std::all_of(changed.begin(), changed.end(), [](const PlanDifference& one) {
    return absl::StartsWith(one.path, "decode.speculative");
  });
}

std::string ChangedPaths(const TrialSpec& spec) {
  return absl::StrJoin(
      DiffPlans(spec.baseline, spec.variant), ", ",
      [](std::string* out, const PlanDifference& one) { absl::StrAppend(out, one.path); });
}

}  // namespace

absl::StatusOr<CampaignPredictor> CampaignPredictor::Create(const Campaign& campaign,
                                                            const Machine& machine,
                                                            ImportedRows* imported) {
  LASTFLOP_ASSIGN_OR_RETURN(StepPredictor predictor,
                            StepPredictor::Create(campaign.model, machine));
  if (imported != nullptr) {
    predictor.UseImported(*imported);
  }
  return CampaignPredictor(campaign, std::move(predictor));
}

namespace {

// As a breakdown that one attempt measured, so that it closes to the step in the same way: each op
// at its time, or at the upper end of its interval.
std::optional<StepBreakdown> BreakdownOf(const StepPrediction& step, bool is_slowest) {
  AttemptResult result;
  result.breakdown_method = "predicted";
  result.breakdown_step_us = step.step.us;
  for (const PredictedOp& op : step.ops) {
    const double us = is_slowest ? op.time.high_us : op.time.us;
    result.breakdown_step_us += us - op.time.us;
    result.breakdown.push_back(
        {.category = op.category, .op = op.op, .us = us, .count = 1, .floor_us = op.floor_us});
  }
  const AttemptResult* const results[] = {&result};
  return MergeBreakdowns(results);
}

}  // namespace

const absl::StatusOr<StepPrediction>& CampaignPredictor::StepOfBaseline(const Plan& plan,
                                                                        int point_index) {
  const auto found = baselines_.find(point_index);
  if (found != baselines_.end() && found->second.plan == plan) {
    return found->second.step;
  }
  const Point& point = campaign_->points[static_cast<size_t>(point_index)];
  return baselines_
      .insert_or_assign(point_index,
                        Remembered{plan, predictor_.Predict(plan, point, {.with_ops = true})})
      .first->second.step;
}

absl::StatusOr<PredictedBaseline> CampaignPredictor::Baseline(int point_index) {
  PredictedBaseline baseline;
  LASTFLOP_ASSIGN_OR_RETURN(baseline.step, StepOfBaseline(campaign_->baseline, point_index));
  std::optional<StepBreakdown> breakdown = BreakdownOf(baseline.step, /*is_slowest=*/false);
  std::optional<StepBreakdown> slowest = BreakdownOf(baseline.step, /*is_slowest=*/true);
  if (!breakdown.has_value() || !slowest.has_value()) {
    return absl::InternalError("the predicted step has no ops");
  }
  baseline.breakdown = *std::move(breakdown);
  baseline.slowest = *std::move(slowest);
  return baseline;
}

PredictedTrial CampaignPredictor::Compare(const TrialSpec& spec) {
  PredictedTrial trial;
  const int64_t num_devices = campaign_->machine.num_devices;
  if (!campaign_->machine_auto && campaign_->machine.backend == "cuda" && num_devices > 0 &&
      spec.variant.num_ranks() > std::max(num_devices, spec.baseline.num_ranks())) {
    trial.reason = absl::StrCat("it takes ", spec.variant.num_ranks(),
                                " GPUs: ", campaign_->machine.name, " has ", num_devices);
    return trial;
  }
  const Point& point = campaign_->points[static_cast<size_t>(spec.point_index)];
  const absl::StatusOr<StepPrediction>& baseline = StepOfBaseline(spec.baseline, spec.point_index);
  if (!baseline.ok()) {
    trial.reason = absl::StrCat("no prediction of the baseline: ", baseline.status().message());
    return trial;
  }
  if (const std::string unseen = PathsWithoutACurve(spec); !unseen.empty()) {
    trial.reason =
        absl::StrCat("the cost model does not see what ", unseen, " changes: measure it");
    return trial;
  }
  const absl::StatusOr<StepPrediction> variant =
      predictor_.Predict(spec.variant, point, {.with_ops = true});
  if (!variant.ok()) {
    trial.reason = absl::StrCat("no prediction: ", variant.status().message());
    return trial;
  }
  for (const std::string& note : variant->notes) {
    if (std::find(baseline->notes.begin(), baseline->notes.end(), note) == baseline->notes.end()) {
      trial.notes.push_back(note);
    }
  }
  const double tokens = variant->tokens_per_step / baseline->tokens_per_step;
  trial.baseline_us = baseline->step.us;
  trial.variant_us = variant->step.us / tokens;
  trial.baseline_tokens_per_s = baseline->tokens_per_s;
  trial.variant_tokens_per_s = variant->tokens_per_s;
  const bool is_patch = spec.baseline != spec.variant;
  if (is_patch && IsOffAt(spec, point)) {
    trial.speedup = UnchangedSpeedup();
    trial.speedup->origin = Origin::kModelled;
    return trial;
  }
  if (is_patch && trial.baseline_us == trial.variant_us) {
    trial.reason = absl::StrCat("the cost model does not see what ", ChangedPaths(spec),
                                " changes: measure it");
    return trial;
  }
  const DifferenceDoubt doubt = DoubtOf(*baseline, *variant);
  const double spread = doubt.spread_us / tokens;
  SpeedupFigure figure{.estimate = trial.baseline_us / trial.variant_us,
                       .low = trial.baseline_us / (trial.variant_us + spread),
                       .high = {},
                       .origin = doubt.origin};
  if (spread < trial.variant_us) {
    figure.high = trial.baseline_us / (trial.variant_us - spread);
  } else {
    figure.low.reset();
  }
  trial.speedup = figure;
  return trial;
}

}  // namespace lastflop
