#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "common/pair.h"
#include "common/words.h"

namespace lastflop {

// A trial with what its attempts gave, over all launches.
struct PooledTrial {
  const TrialRecord* trial = nullptr;  // Outlives this.
  // Authoritative attempts, by start time, then launch.
  std::vector<const AttemptRecord*> attempts;
  int num_other_builds = 0;  // Attempts left out: with another build of a plugin than the latest.
  Standing standing = Standing::kNotRun;
  std::string reason;       // Why standing is not `measured`.
  std::vector<Pair> pairs;  // Of valid attempts; empty unless standing is `measured`.
  Fidelity fidelity = Fidelity::kFull;
  std::optional<double> error;  // Largest over attempts; lossy plans.
  std::optional<double> changed_routes;
  std::optional<double> unique_experts;  // Means over samples.
  std::optional<double> imbalance;
};

// Pools every trial of `results`, in their order. A wrong result, a time of 0 (or one that is no
// number) and a time faster than the declared peak make the whole trial `invalid`; a trial that has
// not finished is `not_run`, whatever samples it has.
std::vector<PooledTrial> PoolTrials(const CampaignResults& results);

// What the standing of a trial is when its attempt ended like this.
Standing StandingOf(FailureKind kind);

}  // namespace lastflop
