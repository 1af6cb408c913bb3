#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign.h"
#include "planner/ranking.h"

namespace lastflop {

// One line of why an intervention stands where it does.
struct ExplainedLine {
  std::string what;    // "ceiling"
  std::string text;    // The figures, on one line.
  std::string origin;  // Words of Origin with what they are of: "modelled: measured breakdown ...".
};

// Ten lines about the intervention called `id`, always the same ten in the same order. NotFound
// with the nearest id as a suggestion.
absl::StatusOr<std::vector<ExplainedLine>> Explain(const Ranking& ranking, const Campaign& campaign,
                                                   absl::string_view id);

}  // namespace lastflop
