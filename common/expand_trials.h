#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/plan.h"
#include "common/trial.h"

namespace lastflop {

// One value for each path of an intervention's `try` sweep.
using Choice = std::vector<FieldSetting>;

// How reports name a choice: "moe.tile_order=column_major", several joined by ",", "" for none.
std::string ChoiceText(const Choice& choice);

// Every choice of the sweep, the last path varying fastest; one empty choice without a sweep.
std::vector<Choice> ChoicesOf(const Intervention& intervention);

// The baseline with the patches of everything the intervention needs (each once, needs of needs
// first), then its own `set` and the choice. InvalidArgument: a setting that is no plan field or
// has no such value, a need that the campaign does not have, needs in a circle.
absl::StatusOr<Plan> VariantPlan(const Campaign& campaign, const Intervention& intervention,
                                 const Choice& choice);

// `plan` with the patches of everything the intervention needs and `applied` has not (each once,
// needs of needs first), then its own `set` and the choice; `applied` gets the ids of all of them.
// InvalidArgument: as VariantPlan.
absl::StatusOr<Plan> PatchedPlan(const Campaign& campaign, const Intervention& intervention,
                                 const Choice& choice, std::set<std::string>& applied, Plan plan);

// All trials of a campaign in the order they should start: the baseline against itself at each
// point, then interventions in file order x choices x points. What the campaign knows to be
// infeasible is settled with its reason; everything else is to be run, also a patch that leaves
// the plan as it is. Pure: the same campaign gives the same trials with the same ids.
// InvalidArgument: as VariantPlan.
absl::StatusOr<std::vector<TrialSpec>> ExpandTrials(const Campaign& campaign);

}  // namespace lastflop
