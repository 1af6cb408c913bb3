#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/campaign.h"
#include "common/machine.h"
#include "common/trial.h"
#include "common/words.h"

// Everything that is known of a campaign: what the database gives and the wire carries to the
// planner. Plain data; a campaign that still runs has fewer attempts and open trials.
namespace lastflop {

struct TrialRecord {
  TrialSpec spec;
  TrialState state = TrialState::kPending;
  std::string reason;  // Why it failed, was lost out or cancelled; "" otherwise.
};

struct AttemptRecord {
  AttemptResult result;  // Has attempt_id, trial_id and launch also when nothing was reported.
  AttemptState state = AttemptState::kLeased;
  // At most one attempt of a (trial, launch) is; only these count. A late report is kept without.
  bool authoritative = false;
  std::vector<std::string> worker_ids;  // Rank 0 first.
  int64_t started_at_ms = 0;            // Since the epoch, UTC; 0 when not known.
  int64_t ended_at_ms = 0;
  std::string outcome;  // What ended it, in words; "" for an ordinary report.
};

struct CampaignResults {
  Campaign campaign;
  std::string campaign_id;
  CampaignState state = CampaignState::kRunning;
  std::string source_yaml;
  Machine machine;  // As detected by the workers that ran it, or as declared.
  std::vector<TrialRecord> trials;
  std::vector<AttemptRecord> attempts;
};

}  // namespace lastflop
