#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// Which interventions are worth building together: a search, without their names.
namespace lastflop {

// Sets are bits, by index.
inline constexpr size_t kMostSetCandidates = 25;

struct SetCandidate {
  // Expected time at each point with it over that without: 0.9 saves a tenth. Multiplies with the
  // others'; exactly 1 where it is off.
  std::vector<double> time_factors;
  double cost = 0;  // In the unit of SetRules::worth.
  double effort_hours = 0;
  uint32_t needs = 0;     // Must be in the set.
  uint32_t excludes = 0;  // Must not.
  // Are never on at the same point, though both may be in the set: switchable per batch.
  uint32_t clashes = 0;
};

struct SetRules {
  std::vector<double> time_shares;  // By point; their sum counts as 1.
  double worth = 1;                 // Of all of today's time.
  std::optional<double> effort_hours;
};

struct BestSet {
  uint32_t set = 0;
  double gain = 0;           // worth * (saved share of time) - cost; 0 for the empty set.
  std::vector<uint32_t> on;  // By point: which of the set are on.
};

// The allowed set with the largest gain, ties by less effort, then the one with the earlier
// candidates. At each point the best of those that clash is on. Exact: branch and bound, whose
// bound is what all that is left would save at no cost. At most kMostSetCandidates.
BestSet FindBestSet(std::span<const SetCandidate> candidates, const SetRules& rules);

// What `set` gives, and what is on; the set is taken to be allowed.
BestSet EvaluateSet(std::span<const SetCandidate> candidates, const SetRules& rules, uint32_t set);

}  // namespace lastflop
