#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "common/expand_trials.h"
#include "common/status_macros.h"
#include "planner/answer.h"
#include "planner/context.h"
#include "planner/expected_steps.h"
#include "planner/finish_ranking.h"
#include "planner/mix.h"
#include "planner/prediction.h"
#include "planner/prune.h"
#include "planner/rank.h"
#include "planner/rounds.h"
#include "planner/stack.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

// What a prediction's interval is meant to hold of measurements (planner/cost/units.h, kEighty).
constexpr double kPredictedConfidence = 0.8;

// The trials as they would be submitted; nothing of them runs.
absl::StatusOr<CampaignResults> NothingRun(const Campaign& campaign) {
  LASTFLOP_ASSIGN_OR_RETURN(std::vector<TrialSpec> specs, ExpandTrials(campaign));
  CampaignResults results;
  results.campaign = campaign;
  results.campaign.fidelity = Fidelity::kPredicted;
  results.machine = campaign.machine;
  results.state = CampaignState::kDone;
  for (TrialSpec& spec : specs) {
    TrialRecord trial;
    trial.state = spec.settled.has_value() ? TrialState::kDone : TrialState::kPending;
    trial.reason = spec.settled_reason;
    trial.spec = std::move(spec);
    results.trials.push_back(std::move(trial));
  }
  return results;
}

// By point, the baseline's trial that is known not to run; null elsewhere.
std::vector<const TrialRecord*> SettledBaselines(const CampaignResults& results) {
  std::vector<const TrialRecord*> settled(results.campaign.points.size(), nullptr);
  for (const TrialRecord& trial : results.trials) {
    if (trial.spec.intervention_id == kBaselineId && trial.spec.settled.has_value()) {
      settled[static_cast<size_t>(trial.spec.point_index)] = &trial;
    }
  }
  return settled;
}

BaselinePoint PredictedPoint(const Campaign& campaign, int point_index,
                             const PredictedBaseline& predicted) {
  BaselinePoint point = NameBaselinePoint(campaign, point_index);
  point.standing = Standing::kPredicted;
  point.reason = absl::StrFormat("%.1f to %.1f us, %s", predicted.step.step.low_us,
                                 predicted.step.step.high_us, ToWord(predicted.step.step.origin));
  point.step_us = predicted.step.step.us;
  point.step_low_us = predicted.step.step.low_us;
  point.step_high_us = predicted.step.step.high_us;
  point.tokens_per_s = predicted.step.tokens_per_s;
  point.unique_experts = predicted.step.unique_experts;
  point.breakdown = predicted.breakdown.categories;
  point.ops = predicted.breakdown.ops;
  point.breakdown_step_us = predicted.breakdown.step_us;
  point.residual_us = predicted.breakdown.residual_us;
  point.breakdown_method = predicted.breakdown.method;
  return point;
}

// The baseline's trial as one that measured the predicted breakdown, for what decides from it.
void AddPredictedAttempt(const PredictedBaseline& predicted, const TrialRecord& trial,
                         CampaignResults& results) {
  AttemptRecord attempt;
  attempt.state = AttemptState::kDone;
  attempt.authoritative = true;
  attempt.result.trial_id = trial.spec.trial_id;
  attempt.result.fidelity = Fidelity::kPredicted;
  attempt.result.breakdown_method = predicted.breakdown.method;
  attempt.result.breakdown_step_us = predicted.breakdown.step_us;
  for (const OpShare& op : predicted.breakdown.ops) {
    attempt.result.breakdown.push_back(
        {.category = op.category, .op = op.op, .us = op.us, .count = 1});
  }
  results.attempts.push_back(std::move(attempt));
}

// Settles the trials that the ceilings of the predicted baselines leave out.
void Prune(const std::vector<std::optional<PredictedBaseline>>& baselines, ExpectedSteps& steps,
           CampaignResults& results) {
  for (const TrialRecord& trial : results.trials) {
    const auto point = static_cast<size_t>(trial.spec.point_index);
    if (trial.spec.intervention_id == kBaselineId && baselines[point].has_value()) {
      AddPredictedAttempt(*baselines[point], trial, results);
    }
  }
  const PruneDecision decision = DecidePruning(results, steps);
  results.attempts.clear();  // Nothing ran.
  for (const PrunedTrial& pruned : decision.trials) {
    TrialRecord& trial = results.trials[pruned.trial];
    trial.state = TrialState::kDone;
    trial.spec.settled = Standing::kPruned;
    trial.spec.settled_reason = absl::StrCat("predicted: ", pruned.reason);
  }
}

using TrialsById = std::map<absl::string_view, std::vector<const PooledTrial*>>;

// Of the choices of a sweep the one that is predicted best in the mix.
void Choose(const RankingContext& context, const std::vector<const PooledTrial*>& trials,
            const std::vector<PredictedTrial>& predicted, SweepChoice& sweep) {
  std::map<std::string, std::vector<MixPart>> mixes;
  for (const PooledTrial* trial : trials) {
    const TrialSpec& spec = trial->trial->spec;
    const auto& speedup = predicted[static_cast<size_t>(trial - context.trials.data())].speedup;
    if (speedup.has_value()) {
      mixes[spec.choice].push_back(
          {context.campaign().points[static_cast<size_t>(spec.point_index)].time_share, *speedup});
    }
  }
  double best = 0;
  for (const auto& [choice, parts] : mixes) {
    const std::optional<SpeedupFigure> mix = MixSpeedup(parts);
    if (parts.size() == sweep.points.size() && mix.has_value() && mix->estimate > best) {
      best = mix->estimate;
      sweep.choice = choice;
      sweep.method = "predicted best in the mix";
    }
  }
}

// Which trial stands for an intervention at each point, and what is predicted of it.
void SetChoices(const std::vector<PredictedTrial>& predicted, RankingContext& context) {
  TrialsById trials_by_id;
  for (const PooledTrial& trial : context.trials) {
    trials_by_id[trial.trial->spec.intervention_id].push_back(&trial);
  }
  for (const Intervention& intervention : context.campaign().interventions) {
    const std::vector<const PooledTrial*>& trials = trials_by_id[intervention.id];
    SweepChoice sweep;
    sweep.points.resize(context.baseline.size());
    const auto fill = [&] {
      for (const PooledTrial* trial : trials) {
        const TrialSpec& spec = trial->trial->spec;
        ChosenTrial& chosen = sweep.points[static_cast<size_t>(spec.point_index)];
        if (chosen.trial == nullptr || spec.choice == sweep.choice) {
          chosen.trial = trial;
          chosen.choice = spec.choice;
        }
      }
    };
    fill();
    if (!intervention.try_values.empty() && !sweep.points.empty() &&
        sweep.points[0].trial != nullptr) {
      Choose(context, trials, predicted, sweep);
      fill();
    }
    std::vector<PredictedTrial> row(sweep.points.size());
    for (size_t point = 0; point < row.size(); ++point) {
      if (sweep.points[point].trial != nullptr) {
        row[point] =
            predicted[static_cast<size_t>(sweep.points[point].trial - context.trials.data())];
      }
    }
    const bool is_predicted = std::any_of(
        row.begin(), row.end(), [](const PredictedTrial& one) { return one.speedup.has_value(); });
    if (intervention.try_values.size() > 1 && !is_predicted) {  // No value has won.
      for (ChosenTrial& chosen : sweep.points) {
        chosen.choice.clear();
      }
    }
    context.choices.push_back(std::move(sweep));
    context.comparisons.emplace_back(context.baseline.size());
    context.predictions.push_back(std::move(row));
  }
}

// Where and with which choice a recommended step is on.
AcceptedIntervention AsAccepted(const RankedIntervention& ranked, const SequenceStep& step) {
  AcceptedIntervention accepted{.id = step.id};
  for (const PointResult& point : ranked.points) {
    const bool is_on =
        point.enabled && (step.on_at.empty() || std::find(step.on_at.begin(), step.on_at.end(),
                                                          point.label) != step.on_at.end());
    accepted.choices.push_back(is_on ? std::optional(point.choice) : std::nullopt);
  }
  return accepted;
}

// The stack of everything in `built` in the mix; absent where the model does not price it.
std::optional<SpeedupFigure> PriceStack(const Campaign& campaign,
                                        std::span<const AcceptedIntervention> built,
                                        CampaignPredictor& predictor) {
  std::vector<MixPart> parts;
  for (size_t point = 0; point < campaign.points.size(); ++point) {
    const absl::StatusOr<Stack> stack = StackAt(campaign, built, point);
    if (!stack.ok()) {
      return std::nullopt;
    }
    TrialSpec spec;
    spec.point_index = static_cast<int>(point);
    spec.baseline = campaign.baseline;
    spec.variant = stack->plan;
    const PredictedTrial priced = predictor.Compare(spec);
    if (!priced.speedup.has_value()) {
      return std::nullopt;
    }
    parts.push_back({campaign.points[point].time_share, *priced.speedup});
  }
  return MixSpeedup(parts);
}

// A model can price what was never measured together: the stacks of the sequence, all or none.
void PriceTogether(const Campaign& campaign, CampaignPredictor& predictor, Ranking& ranking) {
  std::vector<AcceptedIntervention> built;
  std::vector<double> stacks;
  for (const SequenceStep& step : ranking.sequence) {
    const auto ranked =
        std::find_if(ranking.interventions.begin(), ranking.interventions.end(),
                     [&step](const RankedIntervention& one) { return one.id == step.id; });
    built.push_back(AsAccepted(*ranked, step));
    const std::optional<SpeedupFigure> stack = PriceStack(campaign, built, predictor);
    if (!stack.has_value()) {
      return;
    }
    stacks.push_back(stack->estimate);
  }
  for (size_t i = 0; i < stacks.size(); ++i) {
    ranking.sequence[i].expected_stack = stacks[i];
  }
  if (!stacks.empty()) {
    ranking.sequence_note =
        absl::StrCat(ranking.sequence_note.substr(0, ranking.sequence_note.find(';')),
                     "; each stack is priced together by the cost model");
    ranking.answer = AnswerOf(ranking);
  }
}

}  // namespace

absl::StatusOr<Ranking> PreviewCampaign(const Campaign& campaign, const RankOptions& options) {
  if (campaign.machine_auto) {
    return absl::InvalidArgumentError(
        "machine: auto is known to workers only; a prediction needs a machine file, here or by "
        "--set machine=NAME");
  }
  LASTFLOP_ASSIGN_OR_RETURN(CampaignResults results, NothingRun(campaign));
  LASTFLOP_ASSIGN_OR_RETURN(
      CampaignPredictor predictor,
      CampaignPredictor::Create(results.campaign, results.machine, options.imported));
  std::vector<std::optional<PredictedBaseline>> baselines;
  std::vector<std::string> notes;
  absl::Status missing;
  const std::vector<const TrialRecord*> settled = SettledBaselines(results);
  for (size_t i = 0; i < campaign.points.size(); ++i) {
    if (settled[i] != nullptr) {
      missing = absl::FailedPreconditionError(settled[i]->spec.settled_reason);
      baselines.emplace_back();
      continue;
    }
    absl::StatusOr<PredictedBaseline> baseline = predictor.Baseline(static_cast<int>(i));
    if (baseline.ok()) {
      notes.insert(notes.end(), baseline->step.notes.begin(), baseline->step.notes.end());
      baselines.emplace_back(*std::move(baseline));
    } else {
      missing = baseline.status();
      baselines.emplace_back();
    }
  }
  if (std::none_of(baselines.begin(), baselines.end(),
                   [](const auto& baseline) { return baseline.has_value(); })) {
    return missing;
  }
  ExpectedSteps steps(results.campaign, results.machine);
  Prune(baselines, steps, results);
  RankingContext context{.results = results, .trials = PoolTrials(results)};
  context.interval_confidence = kPredictedConfidence;
  std::vector<PredictedTrial> predicted;
  for (const PooledTrial& trial : context.trials) {
    predicted.push_back(trial.trial->spec.settled.has_value()
                            ? PredictedTrial{}
                            : predictor.Compare(trial.trial->spec));
    for (const std::string& note : predicted.back().notes) {
      notes.push_back(absl::StrCat(trial.trial->spec.intervention_id, ": ", note));
    }
  }
  for (size_t i = 0; i < baselines.size(); ++i) {
    context.baseline_trials.push_back(nullptr);
    context.breakdowns.emplace_back();
    context.slowest_breakdowns.emplace_back();
    context.baseline.emplace_back();
    context.baseline[i] = NameBaselinePoint(campaign, static_cast<int>(i));
    context.baseline[i].reason = "the model cannot price the baseline here";
    if (settled[i] != nullptr) {
      context.baseline[i].standing = *settled[i]->spec.settled;
      context.baseline[i].reason = settled[i]->spec.settled_reason;
    }
    if (baselines[i].has_value()) {
      context.breakdowns[i] = baselines[i]->breakdown;
      context.slowest_breakdowns[i] = baselines[i]->slowest;
      context.baseline[i] = PredictedPoint(campaign, static_cast<int>(i), *baselines[i]);
    }
  }
  SetChoices(predicted, context);
  Ranking ranking = RankContext(context, steps, options);
  PriceTogether(results.campaign, predictor, ranking);
  for (const std::optional<PredictedBaseline>& baseline : baselines) {
    if (baseline.has_value() && !baseline->step.borrowed.empty()) {
      ranking.warnings.insert(ranking.warnings.begin(), baseline->step.borrowed);
      break;  // One machine.
    }
  }
  if (campaign.budget.rounds > 1) {
    ranking.assumptions.push_back(absl::StrCat("prediction: of the first of ",
                                               campaign.budget.rounds,
                                               " rounds; later ones need results"));
  }
  if (results.machine.backend == "cuda" && results.machine.num_devices > 0 &&
      campaign.baseline.num_ranks() > results.machine.num_devices) {
    notes.push_back(absl::StrCat("the baseline takes ", campaign.baseline.num_ranks(), " GPUs, ",
                                 results.machine.name, " has ", results.machine.num_devices,
                                 ": links between machines are priced as those inside of one"));
  }
  std::sort(notes.begin(), notes.end());
  notes.erase(std::unique(notes.begin(), notes.end()), notes.end());
  for (const std::string& note : notes) {
    ranking.assumptions.push_back(absl::StrCat("prediction: ", note));
  }
  return ranking;
}

}  // namespace lastflop
