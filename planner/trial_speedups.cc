#include "planner/trial_speedups.h"

#include <utility>
#include <vector>

#include "stats/estimate.h"
#include "stats/throttle.h"

namespace lastflop {

std::map<std::string, double> TrialSpeedups(const CampaignResults& results) {
  std::map<std::string, std::vector<Pair>> pairs;
  for (const AttemptRecord& attempt : results.attempts) {
    if (!attempt.authoritative || attempt.result.failure.has_value()) {
      continue;
    }
    for (const PairSample& sample : attempt.result.samples) {
      pairs[attempt.result.trial_id].push_back(sample.pair);
    }
  }
  std::map<std::string, double> speedups;
  for (const auto& [trial_id, all] : pairs) {
    // Launch by launch, as an estimate has it: every launch weighs the same.
    std::map<int, std::pair<double, double>> sums;
    std::map<int, int> counts;
    for (const Pair& pair : DropThrottled(all, EstimateOptions{}.max_dropped_share).pairs) {
      sums[pair.launch].first += pair.baseline_us;
      sums[pair.launch].second += pair.variant_us;
      ++counts[pair.launch];
    }
    double baseline_us = 0;
    double variant_us = 0;
    for (const auto& [launch, sum] : sums) {
      baseline_us += sum.first / counts[launch];
      variant_us += sum.second / counts[launch];
    }
    if (variant_us > 0) {
      speedups[trial_id] = baseline_us / variant_us;
    }
  }
  return speedups;
}

}  // namespace lastflop
