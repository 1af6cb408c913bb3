#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// What the rank with most pairs computes in one call, as a kernel that works in tiles of
// `tile_rows` rows of one expert sees it. Means over draws where the distribution has any.
struct ExpertCounts {
  double pairs = 0;
  double unique_experts = 0;
  double tiles = 0;
};

// The rank's experts by pairs under a named distribution of rows:
// balanced: min(experts, pairs) experts, equally many each. power_law_A: loads of a truncated power
// law of exponent A, rounded, what rounding loses spread over idle experts; the loaded rank of
// `ep`. uniform, zipf_S: drawn. InvalidArgument: another word, or an ep that does not divide the
// experts.
absl::StatusOr<std::vector<std::vector<double>>> ExpertPairs(absl::string_view distribution,
                                                             int64_t tokens, int64_t experts,
                                                             int64_t topk, int64_t ep);

ExpertCounts CountTiles(const std::vector<std::vector<double>>& draws, double tile_rows);

}  // namespace lastflop
