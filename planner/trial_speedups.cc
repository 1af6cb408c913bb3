#include "planner/trial_speedups.h"

#include <optional>
#include <vector>

#include "stats/estimate.h"

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
    const std::optional<MeanTimes> means = MeanTimesOf(all);
    if (means.has_value() && means->variant_us > 0) {
      speedups[trial_id] = means->baseline_us / means->variant_us;
    }
  }
  return speedups;
}

}  // namespace lastflop
