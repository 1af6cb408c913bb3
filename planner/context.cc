#include "planner/context.h"

#include <utility>

#include "planner/drift.h"
#include "planner/figures.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

const PooledTrial* BaselineTrial(const std::vector<PooledTrial>& trials, int point_index) {
  for (const PooledTrial& trial : trials) {
    if (trial.trial->spec.intervention_id == kBaselineId &&
        trial.trial->spec.point_index == point_index) {
      return &trial;
    }
  }
  return nullptr;
}

std::optional<StepBreakdown> BreakdownOf(const PooledTrial* trial) {
  if (trial == nullptr || trial->standing != Standing::kMeasured) {
    return std::nullopt;
  }
  std::vector<const AttemptResult*> attempts;
  for (const AttemptRecord* attempt : trial->attempts) {
    attempts.push_back(&attempt->result);
  }
  return MergeBreakdowns(attempts);
}

EstimateOptions OptionsOf(const MeasureOptions& measure) {
  EstimateOptions options;
  options.confidence = measure.confidence;
  options.half_width = measure.half_width;
  options.min_pairs = measure.min_pairs;
  return options;
}

void AddFigures(const PooledTrial& trial, const Campaign& campaign, BaselinePoint& point) {
  const Point& asked = campaign.points[static_cast<size_t>(point.point_index)];
  const absl::StatusOr<Estimate> estimate =
      EstimateSpeedup(trial.pairs, OptionsOf(campaign.measure));
  if (!estimate.ok()) {
    point.standing = Standing::kInvalid;
    point.reason = std::string(estimate.status().message());
    return;
  }
  // Both arms are the baseline.
  point.step_us = StepMicros({estimate->baseline_mean_us, estimate->variant_mean_us});
  point.tokens_per_s = TokensPerStep(trial.trial->spec.baseline, asked) / *point.step_us * 1e6;
  point.noise = estimate->noise;
  point.detectable_effect = estimate->min_detectable_effect;
  point.against_itself = FigureOf(*estimate);
  point.effect_against_itself = EffectOf(*point.against_itself, campaign.measure.min_effect);
  point.unique_experts = trial.unique_experts;
  point.imbalance = trial.imbalance;
}

BaselinePoint MakeBaselinePoint(const RankingContext& context, int point_index) {
  const auto index = static_cast<size_t>(point_index);
  BaselinePoint point = NameBaselinePoint(context.campaign(), point_index);
  const PooledTrial* trial = context.baseline_trials[index];
  if (trial == nullptr) {
    point.reason = "the campaign has no trial of the baseline here";
    return point;
  }
  point.standing = trial->standing;
  point.reason = trial->reason;
  if (trial->standing == Standing::kMeasured) {
    AddFigures(*trial, context.campaign(), point);
  }
  if (const std::optional<CampaignDrift> drift = DriftOverCampaign(context.trials, point_index)) {
    point.drift = drift->relative;
    point.drift_error = drift->standard_error;
  }
  if (const std::optional<StepBreakdown>& breakdown = context.breakdowns[index]) {
    point.breakdown = breakdown->categories;
    point.ops = breakdown->ops;
    point.breakdown_step_us = breakdown->step_us;
    point.residual_us = breakdown->residual_us;
    point.breakdown_method = breakdown->method;
  }
  return point;
}

// Estimates every comparison that can be made.
void Compare(RankingContext& context) {
  const MeasureOptions& measure = context.campaign().measure;
  for (size_t i = 0; i < context.choices.size(); ++i) {
    context.comparisons.emplace_back(context.baseline.size());
    for (size_t point = 0; point < context.baseline.size(); ++point) {
      const ChosenTrial& chosen = context.choices[i].points[point];
      if (chosen.pairs.empty() || context.baseline[point].standing != Standing::kMeasured) {
        continue;
      }
      absl::StatusOr<Estimate> estimate = EstimateSpeedup(chosen.pairs, OptionsOf(measure));
      if (estimate.ok()) {
        context.comparisons[i][point].estimate = *std::move(estimate);
      }
    }
  }
}

}  // namespace

BaselinePoint NameBaselinePoint(const Campaign& campaign, int point_index) {
  BaselinePoint point;
  NamePoint(campaign, point_index, point);
  return point;
}

RankingContext MakeUnjudgedContext(const CampaignResults& results) {
  RankingContext context{.results = results, .trials = PoolTrials(results)};
  const auto num_points = static_cast<int>(results.campaign.points.size());
  for (int point_index = 0; point_index < num_points; ++point_index) {
    context.baseline_trials.push_back(BaselineTrial(context.trials, point_index));
    context.breakdowns.push_back(BreakdownOf(context.baseline_trials.back()));
    context.baseline.push_back(MakeBaselinePoint(context, point_index));
  }
  for (const Intervention& intervention : results.campaign.interventions) {
    context.choices.push_back(ChooseTrials(results, context.trials, intervention));
  }
  Compare(context);
  return context;
}

RankingContext MakeContext(const CampaignResults& results) {
  RankingContext context = MakeUnjudgedContext(results);
  RankingContext* const only = &context;
  JudgeTogether({&only, 1});
  return context;
}

void JudgeTogether(std::span<RankingContext* const> contexts) {
  std::vector<Comparison*> compared;
  std::vector<FamilyMember> members;
  for (RankingContext* context : contexts) {
    for (std::vector<Comparison>& row : context->comparisons) {
      for (Comparison& comparison : row) {
        if (comparison.estimate.has_value()) {
          compared.push_back(&comparison);
          members.push_back(MemberOf(*comparison.estimate));
        }
      }
    }
  }
  const MeasureOptions& measure = contexts.front()->campaign().measure;
  const FamilyJudgement judgement = JudgeFamily(members, measure.confidence, measure.min_effect);
  for (RankingContext* context : contexts) {
    context->interval_confidence = judgement.confidence;
  }
  for (size_t i = 0; i < compared.size(); ++i) {
    compared[i]->verdict = judgement.verdicts[i];
  }
}

}  // namespace lastflop
