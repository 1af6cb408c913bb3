#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/expand_trials.h"
#include "common/plan.h"
#include "planner/rounds.h"

// Patches upon patches: what accepted interventions make of a plan, and what they forbid.
namespace lastflop {

// The campaign's baseline with everything accepted, at one point.
struct Stack {
  struct Setting {
    std::string value;
    std::string id;  // Whose.
    int round = 1;
  };

  Plan plan;
  std::set<std::string> applied;        // Ids whose patches are in it.
  std::map<std::string, Setting> sets;  // By path of the field.
};

// `accepted` in order, as far as each is on at `point`. InvalidArgument: as VariantPlan.
absl::StatusOr<Stack> StackAt(const Campaign& campaign,
                              std::span<const AcceptedIntervention> accepted, size_t point);

// Why the intervention with this choice cannot come on top of `stack`, in words; "" when it can.
// What it needs and the stack lacks comes with it.
std::string WhyNotUpon(const Stack& stack, const Campaign& campaign,
                       const Intervention& intervention, const Choice& choice);

}  // namespace lastflop
