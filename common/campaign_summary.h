#pragma once

#include <cstdint>
#include <string>

#include "common/campaign_results.h"
#include "common/words.h"

namespace lastflop {

// A campaign in one line: how many of its trials stand where.
struct CampaignSummary {
  std::string campaign_id;
  std::string name;
  CampaignState state = CampaignState::kRunning;
  int64_t created_at_ms = 0;
  int num_trials = 0;
  int num_done = 0;
  int num_failed = 0;
  int num_running = 0;
  int num_pending = 0;
  int num_cancelled = 0;
  int num_lost_out = 0;
};

// Adds `num_trials` trials of one state.
void CountTrial(TrialState state, int num_trials, CampaignSummary& summary);

CampaignSummary Summarize(const CampaignResults& results);

}  // namespace lastflop
