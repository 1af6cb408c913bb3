#include "common/campaign_summary.h"

namespace lastflop {

void CountTrial(TrialState state, int num_trials, CampaignSummary& summary) {
  summary.num_trials += num_trials;
  switch (state) {
    case TrialState::kPending:
      summary.num_pending += num_trials;
      break;
    case TrialState::kRunning:
      summary.num_running += num_trials;
      break;
    case TrialState::kDone:
      summary.num_done += num_trials;
      break;
    case TrialState::kFailed:
      summary.num_failed += num_trials;
      break;
    case TrialState::kLostOut:
      summary.num_lost_out += num_trials;
      break;
    case TrialState::kCancelled:
      summary.num_cancelled += num_trials;
      break;
  }
}

CampaignSummary Summarize(const CampaignResults& results) {
  CampaignSummary summary{.campaign_id = results.campaign_id,
                          .name = results.campaign.name,
                          .state = results.state,
                          .created_at_ms = results.created_at_ms};
  for (const TrialRecord& trial : results.trials) {
    CountTrial(trial.state, 1, summary);
  }
  return summary;
}

}  // namespace lastflop
