#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
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
  // Of num_done: ended without a measurement (pruned, unsupported, infeasible, wrong). 0 in events
  // that are read back.
  int num_unmeasured = 0;
  int num_failed = 0;
  int num_running = 0;
  int num_pending = 0;
  int num_cancelled = 0;
  int num_lost_out = 0;
};

// Adds `num_trials` trials of one state; `has_finding` says that they ended with one instead of a
// measurement.
void CountTrial(TrialState state, bool has_finding, int num_trials, CampaignSummary& summary);
void CountTrial(const TrialRecord& trial, CampaignSummary& summary);

// How a trial stands in one word: its state, or for one that is done without a measurement what it
// is instead ("pruned", "unsupported", "wrong_result" ...).
absl::string_view WordOf(const TrialRecord& trial);

CampaignSummary Summarize(const CampaignResults& results);

}  // namespace lastflop
