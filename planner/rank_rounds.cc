#include "planner/rank_rounds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "planner/answer.h"
#include "planner/context.h"
#include "planner/figures.h"
#include "planner/judge_rounds.h"
#include "planner/leave_out.h"
#include "planner/mix.h"
#include "planner/rounds.h"
#include "planner/surroundings.h"

namespace lastflop {
namespace {

using OptionalFigure = std::optional<SpeedupFigure>;

const RankedIntervention* FindRanked(const Ranking& ranking, const std::string& id) {
  const auto found = std::find_if(ranking.interventions.begin(), ranking.interventions.end(),
                                  [&id](const RankedIntervention& one) { return one.id == id; });
  return found == ranking.interventions.end() ? nullptr : &*found;
}

// `a` times `b`, or over it. They were measured apart, so their logarithms' distances to each end
// add in squares; a division turns the ends of `b` around.
SpeedupFigure Combine(const SpeedupFigure& a, const SpeedupFigure& b, bool divide) {
  SpeedupFigure out;
  out.estimate = divide ? a.estimate / b.estimate : a.estimate * b.estimate;
  out.num_pairs = a.num_pairs + b.num_pairs;
  out.num_launches = std::max(a.num_launches, b.num_launches);
  out.origin = Origin::kModelled;
  if (a.low.has_value() && a.high.has_value() && b.low.has_value() && b.high.has_value()) {
    const double b_below = std::log(b.estimate / *b.low);
    const double b_above = std::log(*b.high / b.estimate);
    const double below = std::hypot(std::log(a.estimate / *a.low), divide ? b_above : b_below);
    const double above = std::hypot(std::log(*a.high / a.estimate), divide ? b_below : b_above);
    out.low = out.estimate * std::exp(-below);
    out.high = out.estimate * std::exp(above);
  }
  return out;
}

OptionalFigure MixOf(const std::vector<OptionalFigure>& points, const std::vector<double>& shares) {
  std::vector<MixPart> parts;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!points[i].has_value()) {
      return std::nullopt;
    }
    parts.push_back({shares[i], *points[i]});
  }
  return MixSpeedup(parts);
}

class RoundsRanker {
 public:
  RoundsRanker(const CampaignResults& results, const RankOptions& options)
      : results_(results),
        accepted_(AcceptedIn(results)),
        judged_(JudgeRounds(results, options)),
        num_points_(results.campaign.points.size()) {}

  Ranking Rank() {
    Ranking ranking = judged_.rounds.front().ranking;
    for (const JudgedRound& judged : judged_.rounds) {
      ranking.rounds.push_back(Summarize(judged));
    }
    ranking.rounds_note = Note();
    for (RankedIntervention& one : ranking.interventions) {
      one.accepted_round = AcceptedRound(one.id);
    }
    if (!accepted_.empty()) {
      ranking.stack = SummarizeStack();
      SetSequence(ranking);
    }
    MergeSurroundings(ranking);
    ranking.answer = AnswerOf(ranking);
    return ranking;
  }

 private:
  const Ranking& First() const { return judged_.rounds.front().ranking; }

  std::optional<int> AcceptedRound(const std::string& id) const {
    for (const AcceptedIntervention& one : accepted_) {
      if (one.id == id ||
          std::find(one.together.begin(), one.together.end(), id) != one.together.end()) {
        return one.round;
      }
    }
    return std::nullopt;
  }

  // The figures that it was accepted with.
  const RankedIntervention* Confirmation(const AcceptedIntervention& one) const {
    return FindRanked(judged_.rounds[static_cast<size_t>(one.round) - 1].ranking, one.id);
  }

  RoundSummary Summarize(const JudgedRound& judged) const {
    RoundSummary summary;
    summary.round = judged.round;
    summary.step_us = judged.ranking.breakdown_step_us;
    summary.breakdown = judged.ranking.breakdown;
    for (const AcceptedIntervention& one : accepted_) {
      if (one.round == judged.round) {
        summary.accepted = one.id;
        summary.together = one.together;
      }
    }
    if (!IsPass(judged)) {
      return summary;
    }
    for (const RankedIntervention& one : judged.ranking.interventions) {
      RoundEntry entry;
      entry.place = one.place;
      entry.id = one.id;
      entry.choice = one.choice;
      entry.standing = one.standing;
      entry.effect = one.effect;
      entry.mix = one.mix;
      entry.ceiling = one.ceiling;
      entry.is_accepted = one.id == summary.accepted;
      entry.reason = one.reason;
      if (const auto selected = judged.selected.find(one.id); selected != judged.selected.end()) {
        entry.selected_on = selected->second.mix;
      }
      summary.interventions.push_back(std::move(entry));
    }
    return summary;
  }

  // After the last acceptance only the baseline is measured.
  bool IsPass(const JudgedRound& judged) const {
    return std::any_of(
        results_.trials.begin(), results_.trials.end(), [&judged](const TrialRecord& trial) {
          return trial.spec.round == judged.round && trial.spec.role == TrialRole::kCompare &&
                 trial.spec.intervention_id != kBaselineId;
        });
  }

  std::string Note() const {
    if (results_.state == CampaignState::kRunning) {
      return absl::StrCat("round ", judged_.rounds.size(), " of ", results_.campaign.budget.rounds,
                          " is under way");
    }
    return results_.reason;
  }

  std::vector<double> Shares() const {
    std::vector<double> shares;
    for (const Point& point : results_.campaign.points) {
      shares.push_back(point.time_share);
    }
    return shares;
  }

  StackSummary SummarizeStack() const {
    StackSummary summary;
    for (const AcceptedIntervention& one : accepted_) {
      summary.ids.push_back(one.id);
    }
    const double min_effect = results_.campaign.measure.min_effect;
    if (accepted_.size() == 1) {
      const RankedIntervention* only = Confirmation(accepted_.front());
      summary.mix = only == nullptr ? std::nullopt : only->mix;
      summary.reason = "one part is its own stack: the confirmation";
    } else if (judged_.stack.has_value()) {
      summary.mix = MixOf(judged_.stack->points, Shares());
      summary.reason = judged_.stack->reason;
    } else {
      summary.reason = "the stack has not been measured yet";
    }
    if (summary.mix.has_value()) {
      summary.effect = EffectOf(*summary.mix, min_effect);
    }
    if (accepted_.size() > 1) {
      SetInteraction(summary);
    }
    for (size_t i = 0; i < accepted_.size(); ++i) {
      summary.left_out.push_back(LeaveOut(i, min_effect));
    }
    return summary;
  }

  // Each part alone, as the first round or its confirmation has it, beyond what it needs.
  void SetInteraction(StackSummary& summary) const {
    std::vector<OptionalFigure> product(num_points_, UnchangedSpeedup());
    for (size_t point = 0; point < num_points_; ++point) {
      std::map<std::string, SpeedupFigure> parts;
      for (const AcceptedIntervention& one : accepted_) {
        if (!one.IsOn(point) || !product[point].has_value()) {
          continue;
        }
        const RankedIntervention* alone = FindRanked(First(), one.id);
        if (alone == nullptr || !alone->points[point].speedup.has_value()) {
          product[point].reset();
          summary.reason = absl::StrCat("no product: ", one.id, " alone has no result at ",
                                        results_.campaign.points[point].Label());
          continue;
        }
        SpeedupFigure part = *alone->points[point].speedup;
        for (const std::string& needed : NeedsOf(results_.campaign, one.id)) {
          if (const auto below = parts.find(needed); below != parts.end()) {
            part = Combine(part, below->second, /*divide=*/true);
          }
        }
        parts[one.id] = part;
        product[point] = Combine(*product[point], part, /*divide=*/false);
      }
    }
    summary.product = MixOf(product, Shares());
    if (summary.product.has_value() && summary.mix.has_value()) {
      summary.product->origin = Origin::kModelled;
      summary.interaction = Combine(*summary.mix, *summary.product, /*divide=*/true);
    }
  }

  LeftOutPart LeaveOut(size_t index, double min_effect) const {
    const AcceptedIntervention& one = accepted_[index];
    LeftOutPart part{.id = one.id, .reason = WhyNotLeftOut(results_.campaign, accepted_, index)};
    if (index + 1 == accepted_.size()) {
      const RankedIntervention* confirmed = Confirmation(one);
      part.mix = confirmed == nullptr ? std::nullopt : confirmed->mix;
      part.effect = confirmed == nullptr ? std::nullopt : confirmed->effect;
      return part;
    }
    if (!part.reason.empty()) {
      return part;
    }
    const auto found = judged_.left_out.find(one.id);
    if (found == judged_.left_out.end()) {
      part.reason = "not measured yet";
      return part;
    }
    // The time of the smaller stack: that of the whole one, times what the part gives.
    std::vector<double> shares = TimeOfRound(results_, LastRound(results_)).time_shares;
    for (size_t point = 0; point < num_points_; ++point) {
      const OptionalFigure& figure = found->second.points[point];
      shares[point] *= figure.has_value() ? figure->estimate : 1;
    }
    part.mix = MixOf(found->second.points, shares);
    part.reason = found->second.reason;
    if (part.mix.has_value()) {
      part.effect = EffectOf(*part.mix, min_effect);
    }
    return part;
  }

  void AddStep(const std::string& id, std::optional<double> alone, double stack,
               std::vector<SequenceStep>& steps) const {
    const Intervention* intervention = FindIntervention(results_.campaign, id);
    SequenceStep step;
    step.id = id;
    step.title = intervention == nullptr ? "" : intervention->title;
    step.effort_hours = intervention == nullptr ? 0 : intervention->effort.likely_hours;
    step.cumulative_effort_hours =
        step.effort_hours + (steps.empty() ? 0 : steps.back().cumulative_effort_hours);
    const RankedIntervention* ranked = FindRanked(First(), id);
    step.speedup =
        ranked != nullptr && ranked->mix.has_value() ? ranked->mix->estimate : alone.value_or(1);
    step.expected_stack = stack;
    steps.push_back(std::move(step));
  }

  void SetSequence(Ranking& ranking) const {
    std::vector<SequenceStep> steps;
    double before = 1;
    for (size_t i = 0; i < accepted_.size(); ++i) {
      const AcceptedIntervention& one = accepted_[i];
      const RankedIntervention* confirmed = Confirmation(one);
      const bool has_figure = confirmed != nullptr && confirmed->mix.has_value();
      const double stack = 1 / TimeOfRound(results_, one.round + 1).remaining;
      for (const std::string& needed : one.together) {
        AddStep(needed, std::nullopt, before, steps);
      }
      AddStep(one.id, has_figure ? std::optional(confirmed->mix->estimate) : std::nullopt, stack,
              steps);
      if (i == 0 && has_figure) {
        steps.back().measured_stack = confirmed->mix->estimate;
      }
      before = stack;
    }
    if (ranking.stack.has_value() && ranking.stack->mix.has_value()) {
      steps.back().measured_stack = ranking.stack->mix->estimate;
    }
    ranking.sequence = std::move(steps);
    ranking.sequence_net_gpu_hours.reset();  // Of what was recommended after the first round.
    ranking.sequence_note = absl::StrCat(
        "accepted in ", accepted_.size(), accepted_.size() == 1 ? " round" : " rounds",
        ", each measured on top of those before it; the modelled stack is the product of the "
        "confirmations");
  }

  // What the later rounds have to say, and the environment of everything.
  void MergeSurroundings(Ranking& ranking) const {
    const RankingContext all{.results = results_, .trials = PoolTrials(results_)};
    ranking.environment = EnvironmentOf(all);
    for (size_t i = 1; i < judged_.rounds.size(); ++i) {
      for (const std::string& warning : judged_.rounds[i].ranking.warnings) {
        const auto& first = judged_.rounds.front().ranking.warnings;
        if (std::find(first.begin(), first.end(), warning) == first.end()) {
          ranking.warnings.push_back(absl::StrCat("round ", i + 1, ": ", warning));
        }
      }
    }
  }

  const CampaignResults& results_;  // Outlives this.
  const std::vector<AcceptedIntervention> accepted_;
  const JudgedRounds judged_;
  const size_t num_points_;
};

}  // namespace

Ranking RankRounds(const CampaignResults& results, const RankOptions& options) {
  return RoundsRanker(results, options).Rank();
}

}  // namespace lastflop
