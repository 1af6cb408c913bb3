#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/campaign_results.h"

namespace lastflop {

// Runs a campaign with rounds without a coordinator: every open trial gets three launches of twelve
// pairs at the speedup that the test says, then the planner is asked for what comes next.
class RoundsPlayer {
 public:
  // Of a trial: baseline over variant. 0: it is unsupported, below 0: it crashes.
  using Speedup = std::function<double(const TrialSpec&)>;

  // Two decode points (batch 1 and 64, half of the time each), two rounds, Qwen3's dimensions.
  RoundsPlayer(const std::vector<Intervention>& interventions, Speedup speedup);

  CampaignResults& results() { return results_; }

  // Measures everything that is open and decides once; false when the campaign is over.
  bool Stage();
  // Until it is over.
  CampaignResults& Play();

  // What was decided, a message a stage.
  const std::vector<std::string>& messages() const { return messages_; }

  // Trials of a round and role, in order.
  std::vector<const TrialRecord*> Trials(int round, TrialRole role, const std::string& id) const;

 private:
  void Measure(TrialRecord& trial);
  double NextNoise();

  CampaignResults results_;
  Speedup speedup_;
  std::vector<std::string> messages_;
  uint64_t state_ = 1;
};

// Of 8 hours, medium risk, exact.
Intervention Patch(const std::string& id, const std::vector<FieldSetting>& set);

}  // namespace lastflop
