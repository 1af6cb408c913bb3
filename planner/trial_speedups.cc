#include "planner/trial_speedups.h"

namespace lastflop {

std::map<std::string, double> TrialSpeedups(const CampaignResults& results) {
  struct Sums {
    double baseline_us = 0;
    double variant_us = 0;
  };
  std::map<std::string, Sums> sums;
  for (const AttemptRecord& attempt : results.attempts) {
    if (!attempt.authoritative || attempt.result.failure.has_value()) {
      continue;
    }
    Sums& sum = sums[attempt.result.trial_id];
    for (const PairSample& sample : attempt.result.samples) {
      if (!sample.pair.throttled) {
        sum.baseline_us += sample.pair.baseline_us;
        sum.variant_us += sample.pair.variant_us;
      }
    }
  }
  std::map<std::string, double> speedups;
  for (const auto& [trial_id, sum] : sums) {
    if (sum.variant_us > 0) {
      speedups[trial_id] = sum.baseline_us / sum.variant_us;
    }
  }
  return speedups;
}

}  // namespace lastflop
