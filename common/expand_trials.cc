#include "common/expand_trials.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

absl::StatusOr<const Intervention*> Find(const Campaign& campaign, const std::string& id) {
  for (const Intervention& intervention : campaign.interventions) {
    if (intervention.id == id) {
      return &intervention;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("no intervention is called \"", id, "\""));
}

absl::Status ApplySettings(const std::vector<FieldSetting>& settings, Plan& plan) {
  for (const FieldSetting& setting : settings) {
    LASTFLOP_RETURN_IF_ERROR(SetPlanField(setting.path, setting.value, plan));
  }
  return absl::OkStatus();
}

// `open` holds the ids on the way down, `applied` those that are already in the plan.
absl::Status ApplyPatch(const Campaign& campaign, const Intervention& intervention,
                        std::vector<std::string>& open, std::set<std::string>& applied,
                        Plan& plan) {
  if (std::find(open.begin(), open.end(), intervention.id) != open.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("interventions need each other in a circle: ", absl::StrJoin(open, " -> "),
                     " -> ", intervention.id));
  }
  if (!applied.insert(intervention.id).second) {
    return absl::OkStatus();
  }
  open.push_back(intervention.id);
  for (const std::string& id : intervention.needs) {
    LASTFLOP_ASSIGN_OR_RETURN(const Intervention* needed, Find(campaign, id));
    LASTFLOP_RETURN_IF_ERROR(ApplyPatch(campaign, *needed, open, applied, plan));
  }
  open.pop_back();
  return ApplySettings(intervention.set, plan);
}

// Why the cell cannot run, or nullptr.
const std::string* InfeasibleReason(const Campaign& campaign, const Intervention& intervention,
                                    const std::string& choice, int64_t point_index) {
  if (!intervention.infeasible_reason.empty()) {
    return &intervention.infeasible_reason;
  }
  for (const Infeasible& cell : campaign.infeasible) {
    const bool is_baseline = cell.intervention_id == kBaselineId;
    const bool is_here = cell.point_index == -1 || cell.point_index == point_index;
    if (is_here &&
        (is_baseline || (cell.intervention_id == intervention.id && cell.choice == choice))) {
      return &cell.reason;
    }
  }
  return nullptr;
}

void AppendTrials(const Campaign& campaign, const Intervention& intervention,
                  const std::string& choice, const Plan& variant, std::vector<TrialSpec>& trials) {
  for (size_t i = 0; i < campaign.points.size(); ++i) {
    TrialSpec trial;
    trial.trial_id = absl::StrFormat("t%04d", trials.size() + 1);
    trial.intervention_id = intervention.id;
    trial.choice = choice;
    trial.point_index = static_cast<int>(i);
    trial.baseline = campaign.baseline;
    trial.variant = variant;
    if (const std::string* reason =
            InfeasibleReason(campaign, intervention, choice, trial.point_index)) {
      trial.settled = Standing::kInfeasible;
      trial.settled_reason = *reason;
    }
    trials.push_back(std::move(trial));
  }
}

}  // namespace

std::string ChoiceText(const Choice& choice) {
  return absl::StrJoin(choice, ",", [](std::string* out, const FieldSetting& setting) {
    absl::StrAppend(out, setting.path, "=", setting.value);
  });
}

std::vector<Choice> ChoicesOf(const Intervention& intervention) {
  std::vector<Choice> choices = {{}};
  for (const auto& [path, values] : intervention.try_values) {
    std::vector<Choice> longer;
    for (const Choice& choice : choices) {
      for (const std::string& value : values) {
        longer.push_back(choice);
        longer.back().push_back({.path = path, .value = value});
      }
    }
    choices = std::move(longer);
  }
  return choices;
}

absl::StatusOr<Plan> VariantPlan(const Campaign& campaign, const Intervention& intervention,
                                 const Choice& choice) {
  std::set<std::string> applied;
  return PatchedPlan(campaign, intervention, choice, applied, campaign.baseline);
}

absl::StatusOr<Plan> PatchedPlan(const Campaign& campaign, const Intervention& intervention,
                                 const Choice& choice, std::set<std::string>& applied, Plan plan) {
  std::vector<std::string> open;
  LASTFLOP_RETURN_IF_ERROR(ApplyPatch(campaign, intervention, open, applied, plan));
  LASTFLOP_RETURN_IF_ERROR(ApplySettings(choice, plan));
  return plan;
}

absl::StatusOr<std::vector<TrialSpec>> ExpandTrials(const Campaign& campaign) {
  std::vector<TrialSpec> trials;
  Intervention baseline;
  baseline.id = kBaselineId;
  AppendTrials(campaign, baseline, /*choice=*/"", campaign.baseline, trials);
  for (const Intervention& intervention : campaign.interventions) {
    for (const Choice& choice : ChoicesOf(intervention)) {
      LASTFLOP_ASSIGN_OR_RETURN(const Plan variant, VariantPlan(campaign, intervention, choice));
      AppendTrials(campaign, intervention, ChoiceText(choice), variant, trials);
    }
  }
  return trials;
}

}  // namespace lastflop
