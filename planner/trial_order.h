#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/campaign_results.h"

namespace lastflop {

// A prior result as a speedup: "+2%" is 1.02, "-3%" 0.97, "1.2x" and "1.2" 1.2. Absent for any
// other text.
std::optional<double> PriorSpeedup(absl::string_view result);

// The speedup to expect of an intervention before it is measured: somebody's result, else the
// middle of the claim about the step, else half of what the ceiling leaves, else
// measure.min_effect; never above the ceiling.
double ExpectedSpeedup(const Intervention& intervention, const Point& point,
                       std::optional<double> ceiling, double min_effect);

// The trials of `results` by index in the order to start them under budget.wall: baselines first,
// then interventions by expected saving of serving time per second of measuring, the larger first;
// in equals the lower tier, then the campaign's order. An intervention's trials stay together, as a
// total needs all of its points. Seconds are those that the baseline's accepted attempts took, else
// measure.max_time; a plan with processes of its own is charged their making. Of a campaign with
// rounds that is the order within the last one, behind the earlier ones; confirmations and stacks
// come last. Without budget.wall it is the campaign's order.
std::vector<size_t> OrderTrials(const CampaignResults& results);

}  // namespace lastflop
