#include "planner/claim.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/figure_text.h"

namespace lastflop {
namespace {

std::string Claimed(const Claim& claim) {
  const std::string of = claim.of == "step" ? "" : absl::StrCat(" of ", claim.of);
  if (!claim.high.has_value()) {
    return absl::StrFormat("%.3gx or more%s claimed", claim.low, of);
  }
  return absl::StrFormat("%.3g-%.3gx%s claimed", claim.low, *claim.high, of);
}

}  // namespace

ClaimJudgement JudgeClaim(const std::optional<Claim>& claim, const ClaimEvidence& evidence) {
  if (!claim.has_value()) {
    return {};
  }
  const std::string claimed = Claimed(*claim);
  const bool has_interval = evidence.low.has_value() && evidence.high.has_value();
  if (evidence.ceiling.has_value() && claim->low > *evidence.ceiling &&
      !(has_interval && *evidence.low > *evidence.ceiling)) {
    return {ClaimVerdict::kImpossible,
            absl::StrCat(
                evidence.is_ceiling_predicted ? "predicted: " : "", claimed, ", the ceiling is ",
                RatioText(*evidence.ceiling), "x",
                evidence.is_ceiling_predicted ? " with every op as slow as the model may err" : "",
                ": ", evidence.ceiling_arithmetic)};
  }
  if (!evidence.estimate.has_value()) {
    return {ClaimVerdict::kUndecided, absl::StrCat(claimed, ", ", evidence.missing)};
  }
  if (!has_interval) {
    return {ClaimVerdict::kUndecided,
            absl::StrCat(claimed, ", measured ", RatioText(*evidence.estimate),
                         "x without an interval")};
  }
  const std::string measured = absl::StrCat(
      claimed, ", measured ", FigureText(*evidence.estimate, evidence.low, evidence.high));
  if (claim->high.has_value() && *evidence.low > *claim->high) {
    return {ClaimVerdict::kExceeded, measured};
  }
  if (*evidence.low >= claim->low) {
    return {ClaimVerdict::kConfirmed, measured};
  }
  if (*evidence.high >= claim->low) {
    return {ClaimVerdict::kUndecided, measured};
  }
  return {*evidence.low > 1 + evidence.min_effect ? ClaimVerdict::kPartial : ClaimVerdict::kRefuted,
          measured};
}

}  // namespace lastflop
