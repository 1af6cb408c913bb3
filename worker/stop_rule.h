#pragma once

#include <functional>
#include <span>

#include "common/pair.h"
#include "common/units.h"

namespace lastflop {

// Whether sampling of this launch may end, given its pairs so far and the time that sampling has
// taken. Called once after every pair; it must keep its error rate under repeated looks
// (stats/stopping.h does).
using StopRule = std::function<bool(std::span<const Pair> pairs, Micros sampled)>;

}  // namespace lastflop
