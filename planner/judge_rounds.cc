#include "planner/judge_rounds.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "planner/context.h"
#include "planner/expected_steps.h"
#include "planner/figures.h"
#include "planner/finish_ranking.h"
#include "planner/mix.h"
#include "planner/rounds.h"

namespace lastflop {
namespace {

bool IsOpen(const TrialRecord& trial) {
  return trial.state == TrialState::kPending || trial.state == TrialState::kRunning;
}

bool HasTrials(const CampaignResults& results, int round, TrialRole role) {
  return std::any_of(results.trials.begin(), results.trials.end(), [&](const TrialRecord& trial) {
    return trial.spec.round == round && trial.spec.role == role;
  });
}

// Whether the intervention has been confirmed at every point: trials, none of them open.
bool IsConfirmed(const SweepChoice& confirmation) {
  bool has_trial = false;
  for (const ChosenTrial& chosen : confirmation.points) {
    if (chosen.trial != nullptr) {
      has_trial = true;
      if (IsOpen(*chosen.trial->trial)) {
        return false;
      }
    }
  }
  return has_trial;
}

// Contexts of every part of a campaign. They refer to their results, so neither moves.
class Family {
 public:
  RankingContext& Add(CampaignResults results) {
    views_.push_back(std::move(results));
    contexts_.push_back(MakeUnjudgedContext(views_.back()));
    return contexts_.back();
  }

  void Judge() {
    std::vector<RankingContext*> all;
    for (RankingContext& context : contexts_) {
      all.push_back(&context);
    }
    JudgeTogether(all);
  }

 private:
  std::deque<CampaignResults> views_;
  std::deque<RankingContext> contexts_;
};

// Confirmations in place of what was compared; what that was goes to `judged`.
void Confirm(const RankingContext& confirmed, RankingContext& compared, ExpectedSteps& steps,
             JudgedRound& judged) {
  for (size_t i = 0; i < confirmed.choices.size(); ++i) {
    if (!IsConfirmed(confirmed.choices[i])) {
      continue;
    }
    RankedIntervention selected = JudgeIntervention(compared, i, steps);
    SweepChoice confirmation = confirmed.choices[i];
    confirmation.choice = selected.choice;
    confirmation.method =
        absl::StrCat(selected.choice_method, selected.choice_method.empty() ? "" : "; ",
                     "won its round, measured again on fresh seeds");
    judged.selected[selected.id] = std::move(selected);
    compared.choices[i] = std::move(confirmation);
    compared.comparisons[i] = confirmed.comparisons[i];
  }
}

StackFigures FiguresOf(const RankingContext& context, size_t index) {
  StackFigures figures;
  for (size_t point = 0; point < context.baseline.size(); ++point) {
    const ChosenTrial& chosen = context.choices[index].points[point];
    const Comparison& comparison = context.comparisons[index][point];
    if (chosen.trial == nullptr) {
      figures.points.emplace_back(UnchangedSpeedup());
    } else if (comparison.estimate.has_value()) {
      figures.points.emplace_back(FamilyFigureOf(*comparison.estimate, comparison.verdict));
    } else {
      figures.points.emplace_back();
      figures.reason =
          absl::StrCat(context.baseline[point].label, ": ", ToWord(chosen.trial->standing),
                       chosen.trial->reason.empty() ? "" : ", ", chosen.trial->reason);
    }
  }
  return figures;
}

bool HasTrial(const SweepChoice& choice) {
  return std::any_of(choice.points.begin(), choice.points.end(),
                     [](const ChosenTrial& chosen) { return chosen.trial != nullptr; });
}

CampaignResults ResultsOfStack(const CampaignResults& results, int round) {
  CampaignResults of_stack = ResultsOfRound(results, round, TrialRole::kStack);
  Intervention stack;
  stack.id = kStackId;
  of_stack.campaign.interventions = {stack};
  // The round's baseline is the stack itself: only the trials of the stack are looked at.
  return of_stack;
}

// ResultsOfRound leaves out what was accepted, which is what is left out here.
CampaignResults ResultsOfLeftOut(const CampaignResults& results, int round) {
  CampaignResults left_out = ResultsOfRound(results, round, TrialRole::kLeaveOneOut);
  left_out.campaign.interventions = results.campaign.interventions;
  return left_out;
}

}  // namespace

JudgedRounds JudgeRounds(const CampaignResults& results, const RankOptions& options) {
  const int last = LastRound(results);
  Family family;
  std::vector<RankingContext*> compared;
  std::vector<RankingContext*> confirmed;
  for (int round = 1; round <= last; ++round) {
    compared.push_back(&family.Add(ResultsOfRound(results, round, TrialRole::kCompare)));
    confirmed.push_back(HasTrials(results, round, TrialRole::kConfirm)
                            ? &family.Add(ResultsOfRound(results, round, TrialRole::kConfirm))
                            : nullptr);
  }
  RankingContext* const stack = HasTrials(results, last, TrialRole::kStack)
                                    ? &family.Add(ResultsOfStack(results, last))
                                    : nullptr;
  RankingContext* const left_out = HasTrials(results, last, TrialRole::kLeaveOneOut)
                                       ? &family.Add(ResultsOfLeftOut(results, last))
                                       : nullptr;
  family.Judge();

  JudgedRounds judged;
  for (size_t i = 0; i < compared.size(); ++i) {
    JudgedRound of_round{.round = static_cast<int>(i) + 1};
    ExpectedSteps steps(compared[i]->campaign(), compared[i]->results.machine);
    if (confirmed[i] != nullptr) {
      Confirm(*confirmed[i], *compared[i], steps, of_round);
    }
    of_round.ranking = RankContext(*compared[i], steps, options);
    judged.rounds.push_back(std::move(of_round));
  }
  if (stack != nullptr) {
    judged.stack = FiguresOf(*stack, 0);
  }
  if (left_out != nullptr) {
    for (size_t i = 0; i < left_out->choices.size(); ++i) {
      if (HasTrial(left_out->choices[i])) {
        judged.left_out[left_out->campaign().interventions[i].id] = FiguresOf(*left_out, i);
      }
    }
  }
  return judged;
}

}  // namespace lastflop
