#include "planner/next_round.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "planner/context.h"
#include "planner/judge_rounds.h"
#include "planner/leave_out.h"
#include "planner/pool.h"
#include "planner/rounds.h"
#include "planner/stack.h"
#include "step/make_step.h"

namespace lastflop {
namespace {

// What a round would be looked at for: proven, placed, and worth its effort.
bool IsWorthIt(const RankedIntervention& one) {
  return one.place.has_value() && one.effect == Effect::kFaster && one.mix.has_value() &&
         CountedPerDevice(one) > 1 && (!one.gain.has_value() || one.gain->net_gpu_hours > 0);
}

std::string FigureText(const RankedIntervention& one) {
  return one.mix.has_value() && one.effect.has_value()
             ? absl::StrFormat("%.3fx, %s", one.mix->estimate, ToWord(*one.effect))
             : std::string(ToWord(one.standing));
}

class Planner {
 public:
  explicit Planner(const CampaignResults& results)
      : results_(results),
        campaign_(results.campaign),
        round_(LastRound(results)),
        accepted_(AcceptedIn(results)),
        num_trials_(results.trials.size()) {}

  NextRound Decide() {
    if (HasPass()) {
      const JudgedRounds judged = JudgeRounds(results_, {});
      const JudgedRound& last = judged.rounds.back();
      if (const RankedIntervention* best = Best(last.ranking)) {
        return last.selected.count(best->id) > 0 ? Accept(*best) : Confirm(*best);
      }
      next_.message = NothingAccepted(last);
    }
    return Finish();
  }

 private:
  // Whether interventions were compared in the last round; else it only has the final baseline.
  bool HasPass() const {
    return std::any_of(
        results_.trials.begin(), results_.trials.end(), [this](const TrialRecord& trial) {
          return trial.spec.round == round_ && trial.spec.role == TrialRole::kCompare &&
                 trial.spec.intervention_id != kBaselineId;
        });
  }

  bool IsAccepted(const std::string& id) const {
    return std::any_of(accepted_.begin(), accepted_.end(), [&id](const AcceptedIntervention& one) {
      return one.id == id ||
             std::find(one.together.begin(), one.together.end(), id) != one.together.end();
    });
  }

  // Engineer-hours of everything accepted, and of `id` with what it needs.
  double EffortWith(const std::string& id) const {
    std::set<std::string> ids = {id};
    for (const std::string& needed : NeedsOf(campaign_, id)) {
      ids.insert(needed);
    }
    double hours = 0;
    for (const Intervention& one : campaign_.interventions) {
      hours += ids.count(one.id) > 0 || IsAccepted(one.id) ? one.effort.likely_hours : 0;
    }
    return hours;
  }

  bool FitsBudget(const std::string& id) const {
    return !campaign_.budget.effort_hours.has_value() ||
           EffortWith(id) <= *campaign_.budget.effort_hours;
  }

  // Ranked ones come by place.
  const RankedIntervention* Best(const Ranking& ranking) const {
    for (const RankedIntervention& one : ranking.interventions) {
      if (IsWorthIt(one) && FitsBudget(one.id)) {
        return &one;
      }
    }
    return nullptr;
  }

  std::string NothingAccepted(const JudgedRound& last) const {
    std::vector<std::string> beyond;
    for (const RankedIntervention& one : last.ranking.interventions) {
      if (IsWorthIt(one)) {
        beyond.push_back(one.id);
      }
    }
    std::vector<std::string> not_confirmed;
    for (const auto& [id, selected] : last.selected) {
      not_confirmed.push_back(absl::StrCat(id, " (", FigureText(selected), ") was not confirmed"));
    }
    const std::string why =
        beyond.empty() ? "nothing is proven faster and worth its effort"
                       : absl::StrCat("budget.effort does not hold ", absl::StrJoin(beyond, ", "));
    return absl::StrCat("round ", round_, " of ", campaign_.budget.rounds,
                        " accepts nothing: ", absl::StrJoin(not_confirmed, "; "),
                        not_confirmed.empty() ? "" : "; ", why);
  }

  TrialSpec& Add(TrialSpec spec, int round, TrialRole role) {
    spec.trial_id = absl::StrFormat("t%04d", num_trials_ + next_.trials.size() + 1);
    spec.round = round;
    spec.role = role;
    next_.trials.push_back(std::move(spec));
    return next_.trials.back();
  }

  const TrialRecord* CompareTrial(const std::string& id, const std::string& choice,
                                  size_t point) const {
    for (const TrialRecord& trial : results_.trials) {
      if (trial.spec.round == round_ && trial.spec.role == TrialRole::kCompare &&
          trial.spec.intervention_id == id && trial.spec.choice == choice &&
          static_cast<size_t>(trial.spec.point_index) == point) {
        return &trial;
      }
    }
    return nullptr;
  }

  NextRound Confirm(const RankedIntervention& best) {
    for (const PointResult& point : best.points) {
      const TrialRecord* trial =
          CompareTrial(best.id, point.choice, static_cast<size_t>(point.point_index));
      if (trial == nullptr) {
        continue;
      }
      TrialSpec spec = trial->spec;
      if (point.standing != Standing::kMeasured) {
        spec.settled = point.standing;
        spec.settled_reason = point.reason;
      }
      Add(std::move(spec), round_, TrialRole::kConfirm);
    }
    next_.message =
        absl::StrCat("round ", round_, " of ", campaign_.budget.rounds, ": ", best.id,
                     " is the best (", FigureText(best), ") and is measured again on fresh seeds");
    return std::move(next_);
  }

  NextRound Accept(const RankedIntervention& best) {
    AcceptedIntervention accepted{.round = round_, .id = best.id};
    for (const std::string& id : NeedsOf(campaign_, best.id)) {
      if (!IsAccepted(id)) {
        accepted.together.push_back(id);
      }
    }
    accepted.choices.resize(campaign_.points.size());
    for (const PointResult& point : best.points) {
      if (point.enabled && point.speedup.has_value()) {
        accepted.choices[static_cast<size_t>(point.point_index)] = point.choice;
      }
    }
    accepted_.push_back(std::move(accepted));
    next_.message = absl::StrCat("round ", round_, " of ", campaign_.budget.rounds, " accepts ",
                                 best.id, ", confirmed at ", FigureText(best));
    const int next_round = round_ + 1;
    AddBaselines(next_round);
    bool goes_on = false;
    if (round_ < campaign_.budget.rounds) {
      goes_on = AddRemaining(next_round);
    }
    if (!goes_on) {
      AddStacks(next_round);
    }
    return std::move(next_);
  }

  absl::StatusOr<Stack> StackHere(size_t point) const {
    return StackAt(campaign_, accepted_, point);
  }

  // How the last round's baseline ended at each point, where it gave nothing to compare with.
  void AddBaselines(int round) {
    const std::vector<PooledTrial> pooled = PoolTrials(results_);
    for (const PooledTrial& before : pooled) {
      const TrialSpec& last = before.trial->spec;
      if (last.round != round_ || last.role != TrialRole::kCompare ||
          last.intervention_id != kBaselineId) {
        continue;
      }
      const auto point = static_cast<size_t>(last.point_index);
      TrialSpec spec{.intervention_id = kBaselineId, .point_index = last.point_index};
      if (const absl::StatusOr<Stack> stack = StackHere(point); stack.ok()) {
        spec.baseline = stack->plan;
        spec.variant = stack->plan;
      }
      if (before.standing == Standing::kMeasured) {
        measured_points_.insert(point);
      } else {
        spec.settled = before.standing;
        spec.settled_reason = before.reason;
      }
      Add(std::move(spec), round, TrialRole::kCompare);
    }
  }

  // Whether any of them is to be run.
  bool AddRemaining(int round) {
    const std::vector<PooledTrial> pooled = PoolTrials(results_);
    bool any = false;
    for (const Intervention& intervention : campaign_.interventions) {
      if (IsAccepted(intervention.id)) {
        continue;
      }
      for (const Choice& choice : ChoicesOf(intervention)) {
        for (const size_t point : measured_points_) {
          TrialSpec spec = Upon(intervention, choice, point, pooled);
          any |= !spec.settled.has_value();
          Add(std::move(spec), round, TrialRole::kCompare);
        }
      }
    }
    return any;
  }

  // The intervention on top of everything accepted, settled where it has no business there.
  TrialSpec Upon(const Intervention& intervention, const Choice& choice, size_t point,
                 const std::vector<PooledTrial>& pooled) const {
    TrialSpec spec{.intervention_id = intervention.id,
                   .choice = ChoiceText(choice),
                   .point_index = static_cast<int>(point)};
    const auto settle = [&spec](Standing standing, std::string reason) {
      spec.settled = standing;
      spec.settled_reason = std::move(reason);
      return spec;
    };
    absl::StatusOr<Stack> stack = StackHere(point);
    if (!stack.ok()) {
      return settle(Standing::kInfeasible, std::string(stack.status().message()));
    }
    spec.baseline = stack->plan;
    spec.variant = stack->plan;
    if (std::string why = WhyNotUpon(*stack, campaign_, intervention, choice); !why.empty()) {
      return settle(Standing::kNotRun, absl::StrCat("dropped out: ", why));
    }
    absl::StatusOr<Plan> variant =
        PatchedPlan(campaign_, intervention, choice, stack->applied, stack->plan);
    if (!variant.ok()) {
      return settle(Standing::kInfeasible, std::string(variant.status().message()));
    }
    spec.variant = *std::move(variant);
    if (spec.variant == spec.baseline) {
      return settle(Standing::kNotRun, "dropped out: it changes nothing in the baseline any more");
    }
    for (const PooledTrial& before : pooled) {
      const TrialSpec& last = before.trial->spec;
      const bool is_same = last.round == round_ && last.role == TrialRole::kCompare &&
                           last.intervention_id == spec.intervention_id &&
                           last.choice == spec.choice && last.point_index == spec.point_index;
      if (is_same && WillFailAgain(before.standing)) {
        return settle(before.standing, absl::StrCat("as in round ", round_, ": ", before.reason));
      }
    }
    if (const absl::Status feasible = Check(spec.variant, point); !feasible.ok()) {
      return settle(Standing::kInfeasible, std::string(feasible.message()));
    }
    return spec;
  }

  // A wrong result or a crash costs more than another look is worth. What a plan could not do may
  // be possible on another baseline (a kernel that knows the field), and says so at once if not.
  static bool WillFailAgain(Standing standing) {
    return standing == Standing::kInvalid || standing == Standing::kFailed;
  }

  absl::Status Check(const Plan& plan, size_t point) const {
    const absl::Status status = CheckFeasible(campaign_.model, plan);
    return status.ok() ? CheckPoint(campaign_.model, plan, campaign_.points[point]) : status;
  }

  bool HasStacks() const {
    return std::any_of(
        results_.trials.begin(), results_.trials.end(), [](const TrialRecord& trial) {
          return trial.spec.role == TrialRole::kStack || trial.spec.role == TrialRole::kLeaveOneOut;
        });
  }

  NextRound Finish() {
    if (!HasStacks()) {
      AddStacks(round_);
    }
    if (next_.message.empty()) {
      next_.message = absl::StrCat("the last of ", campaign_.budget.rounds, " rounds is over");
    }
    if (!accepted_.empty()) {
      absl::StrAppend(
          &next_.message, "; accepted: ",
          absl::StrJoin(accepted_, ", ", [](std::string* out, const AcceptedIntervention& one) {
            absl::StrAppend(out, one.id);
          }));
    }
    return std::move(next_);
  }

  // One accepted intervention is its own stack, and was measured as such.
  void AddStacks(int round) {
    if (accepted_.size() < 2) {
      return;
    }
    AddStack(round, kStackId, {}, TrialRole::kStack);
    for (size_t i = 0; i < accepted_.size(); ++i) {
      if (WhyNotLeftOut(campaign_, accepted_, i).empty()) {
        AddStack(round, accepted_[i].id, Without(accepted_, i), TrialRole::kLeaveOneOut);
      }
    }
  }

  // The stack of everything against that of `less`, where they differ.
  void AddStack(int round, const std::string& id, const std::vector<AcceptedIntervention>& less,
                TrialRole role) {
    for (size_t point = 0; point < campaign_.points.size(); ++point) {
      const absl::StatusOr<Stack> all = StackHere(point);
      const absl::StatusOr<Stack> smaller = StackAt(campaign_, less, point);
      if (!all.ok() || !smaller.ok() || all->plan == smaller->plan) {
        continue;
      }
      TrialSpec spec{.intervention_id = id,
                     .point_index = static_cast<int>(point),
                     .baseline = smaller->plan,
                     .variant = all->plan};
      if (const absl::Status feasible = Check(smaller->plan, point); !feasible.ok()) {
        spec.settled = Standing::kInfeasible;
        spec.settled_reason = std::string(feasible.message());
      }
      Add(std::move(spec), round, role);
    }
  }

  const CampaignResults& results_;  // Outlives this.
  const Campaign& campaign_;
  const int round_;
  std::vector<AcceptedIntervention> accepted_;
  const size_t num_trials_;
  std::set<size_t> measured_points_;  // Of the last round's baseline.
  NextRound next_;
};

}  // namespace

NextRound DecideNextRound(const CampaignResults& results) {
  return results.campaign.budget.rounds <= 1 ? NextRound{} : Planner(results).Decide();
}

}  // namespace lastflop
