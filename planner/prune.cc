#include "planner/prune.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "planner/breakdown.h"
#include "planner/ceiling.h"
#include "planner/claim.h"
#include "planner/mix.h"
#include "planner/rounds.h"
#include "stats/estimate.h"

namespace lastflop {
namespace {

bool IsBaseline(const TrialRecord& trial) {
  return trial.spec.intervention_id == kBaselineId && trial.spec.role == TrialRole::kCompare;
}

bool IsAccepted(const AttemptRecord& attempt, const TrialRecord& trial) {
  return attempt.authoritative && attempt.result.trial_id == trial.spec.trial_id &&
         !attempt.result.failure.has_value();
}

// Mean time of a step of the baseline, whose trial has it in both arms; 0 without samples.
double BaselineMicros(const std::vector<const AttemptResult*>& attempts) {
  std::vector<Pair> pairs;
  for (const AttemptResult* attempt : attempts) {
    for (const PairSample& sample : attempt->samples) {
      pairs.push_back(sample.pair);
    }
  }
  const std::optional<MeanTimes> means = MeanTimesOf(pairs);
  return means.has_value() ? StepMicros(*means) : 0;
}

// The measured breakdown of the round's baseline at each point.
std::vector<std::optional<StepBreakdown>> BreakdownsOf(const CampaignResults& results, int round) {
  std::vector<std::optional<StepBreakdown>> breakdowns(results.campaign.points.size());
  for (const TrialRecord& trial : results.trials) {
    const auto point = static_cast<size_t>(trial.spec.point_index);
    if (!IsBaseline(trial) || trial.spec.round != round || point >= breakdowns.size()) {
      continue;
    }
    std::vector<const AttemptResult*> attempts;
    for (const AttemptRecord& attempt : results.attempts) {
      if (IsAccepted(attempt, trial)) {
        attempts.push_back(&attempt.result);
      }
    }
    breakdowns[point] = MergeBreakdowns(attempts);
    if (breakdowns[point].has_value() &&
        IsOfAnotherStep(breakdowns[point]->step_us, BaselineMicros(attempts))) {
      breakdowns[point].reset();  // No ground to leave a measurement out, or to call a claim wrong.
    }
  }
  return breakdowns;
}

// A trial that never ran, with its ceilings.
struct Prunable {
  size_t trial = 0;
  std::optional<double> step;
  std::string arithmetic;
  Ceiling claimed;  // Of the part that is claimed.
};

class Pruner {
 public:
  Pruner(const CampaignResults& results, ExpectedSteps& steps)
      : results_(results),
        round_(LastRound(results)),
        time_shares_(TimeOfRound(results, round_).time_shares),
        breakdowns_(BreakdownsOf(results, round_)),
        steps_(steps) {}

  PruneDecision Decide() {
    const std::map<absl::string_view, std::vector<size_t>> waiting = WaitingTrials();
    const std::set<absl::string_view> needed = NeededIds();
    for (const Intervention& intervention : results_.campaign.interventions) {
      // By choice of a sweep; each is a plan of its own.
      std::map<std::string, std::vector<Prunable>> choices;
      if (const auto found = waiting.find(intervention.id); found != waiting.end()) {
        for (const size_t i : found->second) {
          choices[results_.trials[i].spec.choice].push_back(MakeCandidate(intervention, i));
        }
      }
      if (round_ == 1) {  // Claims are about the campaign's baseline.
        JudgeClaimOf(intervention, choices);
      }
      if (!needed.contains(intervention.id)) {
        for (const auto& [choice, candidates] : choices) {
          Prune(intervention, candidates);
        }
      }
    }
    return std::move(decision_);
  }

 private:
  // Trials of the round that never ran, by what they compare.
  std::map<absl::string_view, std::vector<size_t>> WaitingTrials() const {
    std::map<absl::string_view, std::vector<size_t>> waiting;
    for (size_t i = 0; i < results_.trials.size(); ++i) {
      const TrialRecord& trial = results_.trials[i];
      if (trial.spec.round == round_ && trial.spec.role == TrialRole::kCompare &&
          trial.state == TrialState::kPending && trial.num_attempts == 0) {
        waiting[trial.spec.intervention_id].push_back(i);
      }
    }
    return waiting;
  }

  std::set<absl::string_view> NeededIds() const {
    std::set<absl::string_view> needed;
    for (const Intervention& intervention : results_.campaign.interventions) {
      needed.insert(intervention.needs.begin(), intervention.needs.end());
    }
    return needed;
  }

  const Point& PointOf(const Prunable& candidate) const {
    return results_.campaign
        .points[static_cast<size_t>(results_.trials[candidate.trial].spec.point_index)];
  }

  double ShareOf(const Prunable& candidate) const {
    return time_shares_[static_cast<size_t>(results_.trials[candidate.trial].spec.point_index)];
  }

  Prunable MakeCandidate(const Intervention& intervention, size_t index) {
    const TrialSpec& spec = results_.trials[index].spec;
    const auto point = static_cast<size_t>(spec.point_index);
    Prunable candidate;
    candidate.trial = index;
    if (!breakdowns_[point].has_value()) {
      return candidate;
    }
    const absl::StatusOr<CeilingInput> input = PrepareCeiling(
        spec.baseline, spec.variant, results_.campaign.points[point], *breakdowns_[point], steps_);
    if (!input.ok()) {
      return candidate;
    }
    const Ceiling ceiling = MakeCeiling(*input, "step");
    candidate.step = ceiling.speedup;
    candidate.arithmetic = ceiling.arithmetic;
    candidate.claimed = ceiling;
    if (intervention.claim.has_value() && intervention.claim->of != "step") {
      candidate.claimed = MakeCeiling(*input, intervention.claim->of);
    }
    return candidate;
  }

  void Add(const std::vector<Prunable>& candidates, double ceiling, const char* where) {
    std::vector<std::string> arithmetic;
    for (const Prunable& candidate : candidates) {
      arithmetic.push_back(absl::StrCat(PointOf(candidate).Label(), ": ", candidate.arithmetic));
    }
    const std::string reason = absl::StrFormat(
        "the ceiling %s is %.5gx, under the minimum effect of %.3g%%: %s", where, ceiling,
        100 * results_.campaign.measure.min_effect, absl::StrJoin(arithmetic, "; "));
    for (const Prunable& candidate : candidates) {
      decision_.trials.push_back({candidate.trial, reason});
    }
  }

  void Prune(const Intervention& intervention, const std::vector<Prunable>& candidates) {
    const double least = 1 + results_.campaign.measure.min_effect;
    if (intervention.switchable == Switchable::kPerBatch) {
      for (const Prunable& candidate : candidates) {
        if (candidate.step.has_value() && *candidate.step < least) {
          Add({candidate}, *candidate.step, "at this point");
        }
      }
      return;
    }
    std::vector<MixPart> parts;
    for (const Prunable& candidate : candidates) {
      if (!candidate.step.has_value()) {
        return;
      }
      parts.push_back({ShareOf(candidate), {.estimate = *candidate.step}});
    }
    const std::optional<SpeedupFigure> mix = MixSpeedup(parts);
    if (mix.has_value() && mix->estimate < least) {
      Add(candidates, mix->estimate, "in the mix");
    }
  }

  // Held against the sweep's best choice: one that could be right makes the claim possible.
  void JudgeClaimOf(const Intervention& intervention,
                    const std::map<std::string, std::vector<Prunable>>& choices) {
    if (!intervention.claim.has_value() || choices.empty()) {
      return;
    }
    ClaimEvidence best;
    for (const auto& [choice, candidates] : choices) {
      std::vector<MixPart> parts;
      std::vector<std::string> arithmetic;
      for (const Prunable& candidate : candidates) {
        if (!intervention.claim->IsOfBatch(PointOf(candidate).batch)) {
          continue;
        }
        if (!candidate.claimed.speedup.has_value()) {
          return;
        }
        parts.push_back({ShareOf(candidate), {.estimate = *candidate.claimed.speedup}});
        arithmetic.push_back(
            absl::StrCat(PointOf(candidate).Label(), ": ", candidate.claimed.arithmetic));
      }
      const std::optional<SpeedupFigure> mix = MixSpeedup(parts);
      if (!mix.has_value()) {
        return;
      }
      if (mix->estimate > best.ceiling.value_or(0)) {
        best.ceiling = mix->estimate;
        best.ceiling_arithmetic = absl::StrJoin(arithmetic, "; ");
      }
    }
    const ClaimJudgement judgement = JudgeClaim(intervention.claim, best);
    if (judgement.verdict == ClaimVerdict::kImpossible) {
      decision_.impossible.push_back({intervention.id, judgement.reason});
    }
  }

  const CampaignResults& results_;  // Outlives this.
  const int round_;
  const std::vector<double> time_shares_;  // Of the round, by point.
  std::vector<std::optional<StepBreakdown>> breakdowns_;
  ExpectedSteps& steps_;  // Outlives this.
  PruneDecision decision_;
};

}  // namespace

bool AwaitsBaseline(const CampaignResults& results) {
  const MeasureOptions& measure = results.campaign.measure;
  if (!measure.prune || !measure.breakdown) {
    return false;
  }
  const int round = LastRound(results);
  return std::any_of(
      results.trials.begin(), results.trials.end(), [&results, round](const TrialRecord& trial) {
        const bool is_open =
            trial.state == TrialState::kPending || trial.state == TrialState::kRunning;
        return IsBaseline(trial) && trial.spec.round == round && is_open &&
               std::none_of(
                   results.attempts.begin(), results.attempts.end(),
                   [&trial](const AttemptRecord& attempt) { return IsAccepted(attempt, trial); });
      });
}

PruneDecision DecidePruning(const CampaignResults& results) {
  ExpectedSteps steps(results.campaign, results.machine);
  return DecidePruning(results, steps);
}

PruneDecision DecidePruning(const CampaignResults& results, ExpectedSteps& steps) {
  if (!results.campaign.measure.prune) {
    return {};
  }
  return Pruner(results, steps).Decide();
}

}  // namespace lastflop
