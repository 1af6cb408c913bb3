#include "common/campaign_summary.h"

namespace lastflop {

void CountTrial(TrialState state, bool has_finding, int num_trials, CampaignSummary& summary) {
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
      summary.num_unmeasured += has_finding ? num_trials : 0;
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

void CountTrial(const TrialRecord& trial, CampaignSummary& summary) {
  CountTrial(trial.state, trial.spec.settled.has_value() || trial.failure.has_value(), 1, summary);
}

absl::string_view WordOf(const TrialRecord& trial) {
  if (trial.state == TrialState::kDone && trial.spec.settled.has_value()) {
    return ToWord(*trial.spec.settled);
  }
  if (trial.state == TrialState::kDone && trial.failure.has_value()) {
    return ToWord(trial.failure->kind);
  }
  return ToWord(trial.state);
}

CampaignSummary Summarize(const CampaignResults& results) {
  CampaignSummary summary{.campaign_id = results.campaign_id,
                          .name = results.campaign.name,
                          .state = results.state,
                          .created_at_ms = results.created_at_ms};
  for (const TrialRecord& trial : results.trials) {
    CountTrial(trial, summary);
  }
  return summary;
}

}  // namespace lastflop
