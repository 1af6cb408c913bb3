#pragma once

#include <string>
#include <vector>

#include "common/campaign_results.h"

namespace lastflop {

// An accepted attempt at a trial without samples yet, started `index` seconds after the first.
AttemptRecord DoneAttempt(const std::string& trial_id, int launch, size_t index);

// Makes results as a database gives them: two decode points (batch 1 and 64, a quarter and three
// quarters of the time), three launches of twelve pairs a trial, times with a little noise that is
// the same in every run.
class CampaignBuilder {
 public:
  CampaignBuilder();

  // The baseline's own trials at both points: `us` at batch 1, four times that at batch 64.
  CampaignBuilder& Baseline(double us, double noise = 0.002);

  // An intervention of 8 hours and medium risk, measured at both points with these speedups.
  CampaignBuilder& Measured(const std::string& id, double speedup_b1, double speedup_b64,
                            double noise = 0.002);

  // An intervention whose trials at both points end with this failure.
  CampaignBuilder& Failed(const std::string& id, FailureKind kind, const std::string& message);

  // The intervention added last.
  Intervention& last();
  CampaignResults& results() { return results_; }

  // A done trial of `intervention_id` with three launches of samples; returns it.
  TrialRecord& AddTrial(const std::string& intervention_id, int point_index,
                        const std::string& choice, double baseline_us, double speedup,
                        double noise);

 private:
  double NextNoise();

  CampaignResults results_;
  double baseline_us_ = 0;
  uint64_t state_ = 1;
};

// The figures of the intervention called `id`.
template <typename Ranking>
const auto& Find(const Ranking& ranking, const std::string& id) {
  for (const auto& one : ranking.interventions) {
    if (one.id == id) {
      return one;
    }
  }
  return ranking.interventions.at(ranking.interventions.size());  // Throws: the test names it.
}

}  // namespace lastflop
