#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace lastflop {

// Whether pair `pair_index` of a launch times its variant before its baseline. A coin a trial and
// two pairs; of those two pairs, and of the same pair in two launches in a row, one has either
// order. What happens at one place of every launch (a power limit that first bites in the fourth
// step) then falls on both arms and widens the interval: with coins alone and two pairs a launch,
// it fell on one arm in all of three launches once in four trials, and looked like an effect.
// `trial` names the trial among all campaigns.
bool VariantFirst(absl::string_view trial, int launch, int64_t pair_index);

}  // namespace lastflop
