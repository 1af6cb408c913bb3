#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/context.h"

// What a reader has to know beside the figures.
namespace lastflop {

// Where and how it ran: what the attempts reported, with differing values side by side, and what
// the campaign fixed (model, plan, seeds, method).
std::map<std::string, std::string> EnvironmentOf(const RankingContext& context);

// Everything that makes a figure mean less than it seems, each once.
std::vector<std::string> WarningsOf(const RankingContext& context);

// That ceilings and checks rest on no floor of bytes, for a machine without a memory bandwidth; ""
// for one with it.
std::string MissingBandwidthWarning(const Machine& machine);

// What the figures take for granted.
std::vector<std::string> AssumptionsOf(const Campaign& campaign);

}  // namespace lastflop
