#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/expand_trials.h"
#include "common/plan_quality.h"
#include "planner/breakdown.h"
#include "planner/ceiling.h"
#include "planner/context.h"
#include "planner/economics.h"
#include "planner/figures.h"
#include "planner/judged_point.h"
#include "planner/mix.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

// Where it is off for sure: it does not run there, or its ceiling is under the minimum effect.
bool CannotRun(Standing standing) {
  return standing == Standing::kUnsupported || standing == Standing::kInfeasible ||
         standing == Standing::kPruned;
}

void SetFigures(const RankingContext& context, const Comparison& comparison, JudgedPoint& judged) {
  PointResult& result = judged.result;
  const Estimate& estimate = *comparison.estimate;
  result.speedup = FamilyFigureOf(estimate, comparison.verdict);
  result.effect = comparison.verdict.effect;
  result.baseline_us = estimate.baseline_mean_us;
  result.variant_us = estimate.variant_mean_us;
  result.baseline_p50_us = estimate.baseline_median_us;
  result.variant_p50_us = estimate.variant_median_us;
  result.baseline_p99_us = estimate.baseline_p99_us;
  result.variant_p99_us = estimate.variant_p99_us;
  result.noise = estimate.noise;
  result.detectable_effect = estimate.min_detectable_effect;
  result.converged = estimate.converged;
  result.throttled_share = estimate.throttled_share;
  result.baseline_throttled_share = estimate.throttle.baseline;
  result.variant_throttled_share = estimate.throttle.variant;
  result.is_power_limited = estimate.throttle.is_power_limited;
  // Both arms' times are of the baseline's output (common/trial.h, PairSample).
  const Point& asked = context.campaign().points[static_cast<size_t>(result.point_index)];
  const double tokens = TokensPerStep(judged.trial->trial->spec.baseline, asked);
  result.baseline_tokens_per_s = tokens / estimate.baseline_mean_us * 1e6;
  result.variant_tokens_per_s = tokens / estimate.variant_mean_us * 1e6;
  if (!estimate.interval.has_value()) {
    result.reason = absl::StrCat("no interval from ", estimate.num_pairs, " pairs of ",
                                 estimate.num_launches, " launches");
  } else if (!estimate.converged && estimate.num_pairs < context.campaign().measure.min_pairs) {
    result.reason = absl::StrCat("not converged: ", estimate.num_pairs, " pairs of at least ",
                                 context.campaign().measure.min_pairs);
  } else if (!estimate.converged) {
    result.reason = absl::StrFormat("not converged: +/- %.2g%%, asked %.2g%%",
                                    100 * RelativeHalfWidth(*estimate.interval),
                                    100 * context.campaign().measure.half_width);
  }
  if (estimate.is_over_throttle_cap) {
    absl::StrAppend(&result.reason, result.reason.empty() ? "" : "; ",
                    "measured while throttled: too many pairs to drop");
  }
  if (result.is_power_limited) {
    absl::StrAppendFormat(&result.reason,
                          "%spower-limited: the baseline throttles in %.0f%% of its steps, this "
                          "in %.0f%%",
                          result.reason.empty() ? "" : "; ", 100 * *result.baseline_throttled_share,
                          100 * *result.variant_throttled_share);
  }
}

// What the cost model says where nothing was measured.
void SetPrediction(const RankingContext& context, const PredictedTrial& predicted,
                   PointResult& result) {
  result.fidelity = Fidelity::kPredicted;
  result.reason = predicted.reason;
  if (!predicted.speedup.has_value()) {
    return;
  }
  result.standing = Standing::kPredicted;
  result.speedup = predicted.speedup;
  result.effect = EffectOf(*predicted.speedup, context.campaign().measure.min_effect);
  result.baseline_us = predicted.baseline_us;
  result.variant_us = predicted.variant_us;
  result.baseline_tokens_per_s = predicted.baseline_tokens_per_s;
  result.variant_tokens_per_s = predicted.variant_tokens_per_s;
}

void SetCeilings(const RankingContext& context, const Intervention& intervention,
                 ExpectedSteps& steps, JudgedPoint& judged) {
  PointResult& result = judged.result;
  const auto index = static_cast<size_t>(result.point_index);
  if (!context.breakdowns[index].has_value()) {
    result.ceiling_arithmetic = "the baseline has no breakdown here";
    return;
  }
  if (judged.trial == nullptr) {
    return;
  }
  const TrialSpec& spec = judged.trial->trial->spec;
  absl::StatusOr<CeilingInput> input =
      PrepareCeiling(spec.baseline, spec.variant, context.campaign().points[index],
                     *context.breakdowns[index], steps);
  if (!input.ok()) {
    result.ceiling_arithmetic = std::string(input.status().message());
    return;
  }
  const Ceiling ceiling = MakeCeiling(*input, "step");
  result.ceiling = ceiling.speedup;
  result.ceiling_arithmetic = ceiling.arithmetic;
  const std::optional<double> timed_us = context.baseline[index].step_us;
  if (!intervention.claim.has_value() ||
      IsOfAnotherStep(context.breakdowns[index]->step_us, timed_us.value_or(0))) {
    return;  // It calls no claim impossible.
  }
  const bool has_slowest =
      !context.slowest_breakdowns.empty() && context.slowest_breakdowns[index].has_value();
  if (has_slowest) {
    input->breakdown = &*context.slowest_breakdowns[index];
  }
  judged.claim_ceiling = has_slowest || intervention.claim->of != "step"
                             ? MakeCeiling(*input, intervention.claim->of)
                             : ceiling;
}

std::vector<FieldSetting> PatchOf(const Intervention& intervention, const std::string& choice) {
  std::vector<FieldSetting> patch = intervention.set;
  for (const Choice& one : ChoicesOf(intervention)) {
    if (ChoiceText(one) == choice) {
      patch.insert(patch.end(), one.begin(), one.end());
      break;
    }
  }
  return patch;
}

JudgedPoint JudgePoint(const RankingContext& context, size_t intervention_index, int point_index,
                       ExpectedSteps& steps) {
  const Intervention& intervention = context.campaign().interventions[intervention_index];
  const auto at = static_cast<size_t>(point_index);
  const ChosenTrial& chosen = context.choices[intervention_index].points[at];
  const Comparison& comparison = context.comparisons[intervention_index][at];
  JudgedPoint judged;
  PointResult& result = judged.result;
  NamePoint(context.campaign(), point_index, result);
  judged.trial = chosen.trial;
  result.patch = PatchOf(intervention, chosen.choice);
  if (chosen.trial == nullptr) {
    result.standing =
        intervention.infeasible_reason.empty() ? Standing::kNotRun : Standing::kInfeasible;
    result.reason = intervention.infeasible_reason.empty() ? "the campaign has no trial of it here"
                                                           : intervention.infeasible_reason;
  } else {
    result.standing = chosen.trial->standing;
    result.reason = chosen.trial->reason;
    result.fidelity = chosen.trial->fidelity;
    result.choice = chosen.choice;
  }
  const BaselinePoint& baseline = context.baseline[at];
  if (result.standing == Standing::kMeasured && baseline.standing != Standing::kMeasured) {
    result.standing = Standing::kNotRun;
    result.reason = absl::StrCat("no baseline to compare with: ", ToWord(baseline.standing), ", ",
                                 baseline.reason);
  } else if (result.standing == Standing::kMeasured) {
    const TrialSpec& spec = chosen.trial->trial->spec;
    // Where layers are left out, stages keep others than a plan without them.
    const bool has_same_layers = context.campaign().layers_kept == 0 ||
                                 spec.baseline.parallel.pipeline == spec.variant.parallel.pipeline;
    if (has_same_layers && HasComparableOutput(spec.baseline, spec.variant, result.fidelity)) {
      result.error = chosen.trial->error;
      result.changed_routes = chosen.trial->changed_routes;
    }
    if (comparison.estimate.has_value()) {
      SetFigures(context, comparison, judged);
    } else {
      result.standing = Standing::kInvalid;
      result.reason = "its samples give no estimate";
    }
  }
  if (!context.predictions.empty() && result.standing == Standing::kNotRun) {
    SetPrediction(context, context.predictions[intervention_index][at], result);
  }
  SetCeilings(context, intervention, steps, judged);
  return judged;
}

// Standing and reason of the whole, where a point without result forbids a total. The standing that
// says most about the plan comes first.
void SetMissing(const std::vector<JudgedPoint>& points, RankedIntervention& ranked) {
  constexpr Standing kOrder[] = {Standing::kInvalid,     Standing::kFailed, Standing::kInfeasible,
                                 Standing::kUnsupported, Standing::kPruned, Standing::kPredicted,
                                 Standing::kNotRun};
  size_t best = std::size(kOrder);
  double share = 0;
  std::vector<std::string> labels;
  for (const JudgedPoint& point : points) {
    if (point.result.speedup.has_value()) {
      continue;
    }
    share += point.result.time_share;
    labels.push_back(point.result.label);
    const auto rank =
        static_cast<size_t>(std::find(std::begin(kOrder), std::end(kOrder), point.result.standing) -
                            std::begin(kOrder));
    if (rank < best) {
      best = rank;
      ranked.standing = point.result.standing;
      ranked.reason = point.result.reason;
    }
  }
  if (labels.size() < points.size()) {
    ranked.reason = absl::StrFormat("no total: %.0f%% of the time has no result (%s): %s",
                                    100 * share, absl::StrJoin(labels, ", "), ranked.reason);
  }
}

// Sets mix, effect and standing. `enabled` of each point is decided here.
void SetMix(const RankingContext& context, std::vector<JudgedPoint>& points,
            RankedIntervention& ranked) {
  const bool per_batch = ranked.switchable == Switchable::kPerBatch;
  std::vector<MixPart> parts;
  bool any_on = false;
  bool any_measured = false;
  bool complete = !points.empty();
  for (JudgedPoint& point : points) {
    PointResult& result = point.result;
    const bool measured = result.speedup.has_value();
    any_measured |= measured;
    result.enabled = !per_batch || (measured && result.effect == Effect::kFaster);
    const bool has_baseline =
        context.baseline[static_cast<size_t>(result.point_index)].step_us.has_value();
    complete &= measured || (per_batch && has_baseline && CannotRun(result.standing));
    any_on |= result.enabled && measured;
    const bool on = result.enabled && measured;
    parts.push_back({result.time_share, on ? *result.speedup : UnchangedSpeedup()});
    if (measured && !on) {
      parts.back().speedup.origin = result.speedup->origin;  // It decided that it is off.
    }
  }
  if (!complete || !any_measured) {
    SetMissing(points, ranked);
    return;
  }
  const bool is_predicted = std::any_of(points.begin(), points.end(), [](const JudgedPoint& point) {
    return point.result.standing == Standing::kPredicted;
  });
  ranked.standing = is_predicted ? Standing::kPredicted : Standing::kMeasured;
  ranked.mix = MixSpeedup(parts);
  if (ranked.mix.has_value() && any_on) {
    ranked.effect = EffectOf(*ranked.mix, context.campaign().measure.min_effect);
  }
  if (!per_batch || !ranked.mix.has_value()) {
    return;
  }
  std::vector<std::string> on;
  std::optional<Effect> off_effect;  // What it would do where it was measured and left off.
  for (const JudgedPoint& point : points) {
    if (point.result.enabled) {
      on.push_back(point.result.label);
    } else if (point.result.effect.has_value() && off_effect != Effect::kUndecided) {
      off_effect = off_effect.has_value() && off_effect != point.result.effect
                       ? Effect::kUndecided
                       : *point.result.effect;
    }
    if (!point.result.enabled && point.result.speedup.has_value()) {
      // They decided that it is off.
      ranked.mix->num_pairs += point.result.speedup->num_pairs;
      ranked.mix->num_launches =
          std::max(ranked.mix->num_launches, point.result.speedup->num_launches);
    }
  }
  if (!any_on) {  // It is off, so nothing changes; whether that is right may be open.
    ranked.effect =
        off_effect == Effect::kUndecided || !off_effect.has_value() ? off_effect : Effect::kSame;
    if (ranked.effect != Effect::kSame) {
      ranked.mix->low.reset();  // It is 1 as it is off, not as 1 was measured.
      ranked.mix->high.reset();
    }
  }
  ranked.reason = on.empty() ? "per_batch: off everywhere, proven faster nowhere"
                             : absl::StrCat("per_batch: on at ", absl::StrJoin(on, ", "));
}

void SetCeiling(const std::vector<JudgedPoint>& points, RankedIntervention& ranked) {
  std::vector<MixPart> parts;
  std::vector<std::string> arithmetic;
  for (const JudgedPoint& point : points) {
    const PointResult& result = point.result;
    arithmetic.push_back(absl::StrCat(result.label, ": ", result.ceiling_arithmetic));
    if (result.ceiling.has_value()) {
      // Where it can be switched off, the baseline is a bound as well.
      const double ceiling = ranked.switchable == Switchable::kPerBatch
                                 ? std::max(1.0, *result.ceiling)
                                 : *result.ceiling;
      parts.push_back({result.time_share, {.estimate = ceiling, .low = {}, .high = {}}});
    }
  }
  if (parts.size() == points.size()) {
    if (const std::optional<SpeedupFigure> mix = MixSpeedup(parts)) {
      ranked.ceiling = mix->estimate;
    }
  }
  ranked.ceiling_arithmetic = absl::StrJoin(arithmetic, "; ");
}

// What the largest of its plans takes beside the baseline's: a deployment holds that many, also
// where a batch leaves it off.
void SetDevices(const RankingContext& context, const std::vector<JudgedPoint>& points,
                RankedIntervention& ranked) {
  const char* const unit = context.results.machine.backend == "cpu" ? "ranks" : "GPUs";
  for (const JudgedPoint& point : points) {
    if (point.trial == nullptr) {
      continue;
    }
    const TrialSpec& spec = point.trial->trial->spec;
    const int64_t before = spec.baseline.num_ranks();
    const int64_t after = spec.variant.num_ranks();
    const double ratio = static_cast<double>(after) / static_cast<double>(before);
    if (ranked.devices_text.empty() || ratio > ranked.devices_ratio) {
      ranked.devices_ratio = ratio;
      ranked.devices_text =
          after == before ? "" : absl::StrCat(after, " ", unit, " instead of ", before);
    }
  }
}

// The figure of GPU-hours instead of time.
SpeedupFigure OverDevices(SpeedupFigure figure, double devices_ratio) {
  figure.estimate /= devices_ratio;
  for (std::optional<double>* end : {&figure.low, &figure.high}) {
    if (end->has_value()) {
      **end /= devices_ratio;
    }
  }
  return figure;
}

// Of an intervention and all that it needs: they are built, and were measured, together.
struct WholeCost {
  Effort effort;
  double chance = 1;  // That none of them fails in production.
};

WholeCost CostOfWhole(const Campaign& campaign, const RankedIntervention& ranked) {
  WholeCost whole{.effort = ranked.effort, .chance = ChanceOfSuccess(ranked.risk)};
  std::vector<std::string> open = ranked.needs;
  std::set<std::string> counted = {ranked.id};
  while (!open.empty()) {
    const std::string id = open.back();
    open.pop_back();
    for (const Intervention& needed : campaign.interventions) {
      if (needed.id == id && counted.insert(id).second) {
        whole.effort.low_hours += needed.effort.low_hours;
        whole.effort.likely_hours += needed.effort.likely_hours;
        whole.effort.high_hours += needed.effort.high_hours;
        whole.chance *= ChanceOfSuccess(needed.risk);
        open.insert(open.end(), needed.needs.begin(), needed.needs.end());
      }
    }
  }
  return whole;
}

void SetGain(const RankingContext& context, const WholeCost& whole, RankedIntervention& ranked) {
  if (!ranked.mix.has_value()) {
    return;
  }
  const Economics& economics = context.campaign().economics;
  const double counted = CountedPerDevice(ranked);
  ranked.gain = NetGain(OverDevices(*ranked.mix, ranked.devices_ratio), counted, whole.effort,
                        whole.chance, economics);
  ranked.break_even_gpu_hours = BreakEvenGpuHours(counted, whole.effort, whole.chance, economics);
  if (ranked.gain.has_value() && whole.effort.likely_hours > 0) {
    ranked.gain_per_hour = ranked.gain->net_gpu_hours / whole.effort.likely_hours;
  }
  if (!ranked.devices_text.empty()) {
    absl::StrAppend(&ranked.reason, ranked.reason.empty() ? "" : "; ",
                    absl::StrFormat("takes %s: %.3gx the GPU-hours", ranked.devices_text,
                                    ranked.devices_ratio / CountedSpeedup(ranked)));
  }
  if (!ranked.needs.empty()) {
    absl::StrAppend(&ranked.reason, ranked.reason.empty() ? "" : "; ",
                    "measured with what it needs (", absl::StrJoin(ranked.needs, ", "),
                    "), whose effort and risk the gain counts");
  }
}

// The largest error of the points. Lossy interventions rank apart unless it is known and within the
// budget.
void SetQuality(const RankingContext& context, RankedIntervention& ranked) {
  for (const PointResult& point : ranked.points) {
    if (point.error.has_value()) {
      ranked.error = std::max(ranked.error.value_or(0), *point.error);
    }
  }
  if (ranked.quality != Quality::kLossy) {
    return;
  }
  const double max_error = context.campaign().budget.max_error;
  ranked.ranks_apart = !(max_error > 0 && ranked.error.has_value() && *ranked.error <= max_error);
  if (ranked.ranks_apart && ranked.mix.has_value()) {
    const std::string error =
        ranked.error.has_value() ? absl::StrFormat("%.3g", *ranked.error) : "not measured";
    ranked.reason = absl::StrFormat("lossy: error %s, budget.max_error %.3g%s%s", error, max_error,
                                    ranked.reason.empty() ? "" : "; ", ranked.reason);
  }
}

}  // namespace

RankedIntervention JudgeIntervention(const RankingContext& context, size_t index,
                                     ExpectedSteps& steps) {
  const Intervention& intervention = context.campaign().interventions[index];
  RankedIntervention ranked;
  ranked.id = intervention.id;
  ranked.title = intervention.title;
  ranked.tier = intervention.tier;
  ranked.effort = intervention.effort;
  ranked.risk = intervention.risk;
  ranked.quality = intervention.quality;
  ranked.switchable = intervention.switchable;
  ranked.claim = intervention.claim;
  ranked.prior = intervention.prior;
  ranked.needs = intervention.needs;
  ranked.excludes = intervention.excludes;
  ranked.choice = context.choices[index].choice;
  ranked.choice_method = context.choices[index].method;
  std::vector<JudgedPoint> points;
  for (size_t point = 0; point < context.baseline.size(); ++point) {
    points.push_back(JudgePoint(context, index, static_cast<int>(point), steps));
    ranked.fidelity = std::max(ranked.fidelity, points.back().result.fidelity);
  }
  SetMix(context, points, ranked);
  SetDevices(context, points, ranked);
  SetCeiling(points, ranked);
  SetClaim(context, points, ranked);
  for (JudgedPoint& point : points) {
    ranked.points.push_back(std::move(point.result));
  }
  if (ranked.standing == Standing::kPredicted && ranked.mix.has_value()) {
    ranked.predicted_speedup = ranked.mix->estimate;
  }
  SetQuality(context, ranked);
  const WholeCost whole = CostOfWhole(context.campaign(), ranked);
  ranked.whole_effort_hours = whole.effort.likely_hours;
  ranked.whole_chance = whole.chance;
  SetGain(context, whole, ranked);
  return ranked;
}

double CountedSpeedup(const RankedIntervention& intervention) {
  const bool is_proven =
      intervention.effect == Effect::kFaster || intervention.effect == Effect::kSlower;
  return is_proven && intervention.mix.has_value() ? intervention.mix->estimate : 1;
}

double CountedPerDevice(const RankedIntervention& intervention) {
  return CountedSpeedup(intervention) / intervention.devices_ratio;
}

}  // namespace lastflop
