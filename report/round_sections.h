#pragma once

#include <vector>

#include "planner/ranking.h"
#include "report/document.h"

namespace lastflop {

// What a campaign with rounds shows beside the ranking: each round's comparisons and what it
// accepted, where the step's time goes after each acceptance, and the stack with what each part of
// it still gives. Empty for a campaign of one round.
std::vector<Section> RoundSections(const Ranking& ranking);

}  // namespace lastflop
