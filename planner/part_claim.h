#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "planner/pool.h"

namespace lastflop {

// How much faster one part of the step became.
struct PartSpeedup {
  std::optional<double> estimate;  // Mean over launches of the part's time, baseline over variant.
  std::optional<double> low;       // Least and largest launch; only of three launches or more.
  std::optional<double> high;
  std::string missing;  // Why there is no estimate, or no interval.
};

// Compares `of` (moe: categories moe and dequant; op:NAME) between the breakdowns of both trials,
// launch by launch. Both trials outlive the call; `variant` may be nullptr.
PartSpeedup ComparePart(const PooledTrial& baseline, const PooledTrial* variant,
                        absl::string_view of);

}  // namespace lastflop
