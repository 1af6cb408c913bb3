#include "planner/part_claim.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace lastflop {
namespace {

constexpr size_t kLeastLaunches = 3;

bool IsOf(const BreakdownEntry& entry, absl::string_view of) {
  if (of == "moe") {
    return entry.category == OpCategory::kMoe || entry.category == OpCategory::kDequant;
  }
  return absl::StripPrefix(of, "op:") == entry.op;
}

// Time of the part by launch; launches without it are absent.
std::map<int, double> PartTimes(const PooledTrial& trial, absl::string_view of) {
  std::map<int, double> times;
  for (const AttemptRecord* attempt : trial.attempts) {
    double us = 0;
    for (const BreakdownEntry& entry : attempt->result.breakdown) {
      if (IsOf(entry, of)) {
        us += entry.us;
      }
    }
    if (!attempt->result.failure.has_value() && std::isfinite(us) && us > 0) {
      times[attempt->result.launch] = us;
    }
  }
  return times;
}

}  // namespace

PartSpeedup ComparePart(const PooledTrial& baseline, const PooledTrial* variant,
                        absl::string_view of) {
  PartSpeedup part;
  if (variant == nullptr || variant->standing != Standing::kMeasured) {
    part.missing = "not measured";
    return part;
  }
  const std::map<int, double> before = PartTimes(baseline, of);
  const std::map<int, double> after = PartTimes(*variant, of);
  std::vector<double> ratios;
  for (const auto& [launch, us] : after) {
    if (const auto found = before.find(launch); found != before.end()) {
      ratios.push_back(found->second / us);
    }
  }
  if (ratios.empty()) {
    part.missing =
        absl::StrCat("the time of ", of, " was not measured in both arms; the step's says nothing");
    return part;
  }
  double sum = 0;
  for (const double ratio : ratios) {
    sum += ratio;
  }
  part.estimate = sum / static_cast<double>(ratios.size());
  if (ratios.size() < kLeastLaunches) {
    part.missing = absl::StrCat(of, " has a breakdown in ", ratios.size(), " launches of 3");
    return part;
  }
  part.low = *std::min_element(ratios.begin(), ratios.end());
  part.high = *std::max_element(ratios.begin(), ratios.end());
  return part;
}

}  // namespace lastflop
