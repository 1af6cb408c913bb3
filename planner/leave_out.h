#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "common/campaign.h"
#include "planner/rounds.h"

// The final stack without one of its parts.
namespace lastflop {

std::vector<AcceptedIntervention> Without(std::span<const AcceptedIntervention> accepted,
                                          size_t index);

// Why no trial of its own measures the stack without number `index`: another one needs it, or it is
// the last one, whose confirmation is that comparison. "" when one does.
std::string WhyNotLeftOut(const Campaign& campaign, std::span<const AcceptedIntervention> accepted,
                          size_t index);

}  // namespace lastflop
