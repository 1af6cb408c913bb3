#pragma once

#include <optional>
#include <string>

#include "common/campaign.h"
#include "common/words.h"

namespace lastflop {

struct ClaimJudgement {
  ClaimVerdict verdict = ClaimVerdict::kNone;
  std::string reason;  // The comparison in figures.
};

// What stands against a claim: of the part that is claimed and only at points where it is claimed.
struct ClaimEvidence {
  std::optional<double> estimate;
  std::optional<double> low;  // Multiplicity-controlled interval of the speedup.
  std::optional<double> high;
  std::optional<double> ceiling;
  std::string ceiling_arithmetic;
  // The ceiling is of a predicted step, already at the upper end of the model's error.
  bool is_ceiling_predicted = false;
  double min_effect = 0.01;
  std::string missing;  // Why there is no estimate, or no interval.
};

// `impossible`: the least claimed speedup is above the ceiling (and no measurement contradicts the
// ceiling). `exceeded`: the whole interval is above the claimed range. `confirmed`: the whole
// interval is at or above the least claimed. `partial`: below it, but proven faster by min_effect.
// `refuted`: below it, and not proven faster. `undecided`: the interval holds the least claimed
// value, or there is none. `none`: nothing is claimed.
ClaimJudgement JudgeClaim(const std::optional<Claim>& claim, const ClaimEvidence& evidence);

}  // namespace lastflop
