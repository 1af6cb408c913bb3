#include "planner/stack.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

bool Excludes(const Intervention& one, const std::string& id) {
  return std::find(one.excludes.begin(), one.excludes.end(), id) != one.excludes.end();
}

void Note(const std::vector<FieldSetting>& settings, const std::string& id, int round,
          Stack& stack) {
  for (const FieldSetting& setting : settings) {
    stack.sets[setting.path] = {.value = setting.value, .id = id, .round = round};
  }
}

std::string WhyFieldsClash(const Stack& stack, const std::vector<FieldSetting>& settings) {
  for (const FieldSetting& setting : settings) {
    const auto found = stack.sets.find(setting.path);
    if (found != stack.sets.end() && found->second.value != setting.value) {
      return absl::StrCat("it sets ", setting.path, "=", setting.value, ", and ", found->second.id,
                          ", accepted in round ", found->second.round, ", sets it to ",
                          found->second.value);
    }
  }
  return "";
}

std::string WhyExcluded(const Stack& stack, const Campaign& campaign, const Intervention& one) {
  for (const std::string& id : stack.applied) {
    const Intervention* other = FindIntervention(campaign, id);
    if (Excludes(one, id) || (other != nullptr && Excludes(*other, one.id))) {
      return absl::StrCat(one.id, " and ", id, ", which is in the baseline, exclude each other");
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<Stack> StackAt(const Campaign& campaign,
                              std::span<const AcceptedIntervention> accepted, size_t point) {
  Stack stack;
  stack.plan = campaign.baseline;
  for (const AcceptedIntervention& one : accepted) {
    const Intervention* intervention = FindIntervention(campaign, one.id);
    if (intervention == nullptr || !one.IsOn(point)) {
      continue;
    }
    const std::set<std::string> before = stack.applied;
    const Choice choice = ChoiceOf(*intervention, *one.choices[point]);
    LASTFLOP_ASSIGN_OR_RETURN(stack.plan, PatchedPlan(campaign, *intervention, choice,
                                                      stack.applied, std::move(stack.plan)));
    for (const std::string& id : stack.applied) {
      const Intervention* added = FindIntervention(campaign, id);
      if (before.count(id) == 0 && added != nullptr && added != intervention) {
        Note(added->set, id, one.round, stack);
      }
    }
    Note(intervention->set, one.id, one.round, stack);  // Over what it needs.
    Note(choice, one.id, one.round, stack);
  }
  return stack;
}

std::string WhyNotUpon(const Stack& stack, const Campaign& campaign,
                       const Intervention& intervention, const Choice& choice) {
  if (stack.applied.count(intervention.id) > 0) {
    return "it is in the baseline already";
  }
  std::vector<const Intervention*> added = {&intervention};
  for (const std::string& id : NeedsOf(campaign, intervention.id)) {
    if (const Intervention* needed = FindIntervention(campaign, id);
        needed != nullptr && stack.applied.count(id) == 0) {
      added.push_back(needed);
    }
  }
  for (const Intervention* one : added) {
    if (std::string why = WhyExcluded(stack, campaign, *one); !why.empty()) {
      return why;
    }
    if (std::string why = WhyFieldsClash(stack, one->set); !why.empty()) {
      return why;
    }
  }
  return WhyFieldsClash(stack, choice);
}

}  // namespace lastflop
