#pragma once

#include <cstdint>
#include <optional>
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
  // What ended it: a finding (unsupported, infeasible, wrong_result, impossible: the trial is
  // `done`), or the last of its own failures (it is `failed`). Unset otherwise.
  std::optional<Failure> failure;
  int num_attempts = 0;    // Attempts that were leased, lost ones included.
  bool converged = false;  // measure.half_width was reached within measure.max_time.
};

struct AttemptRecord {
  AttemptResult result;  // Has attempt_id, trial_id and launch also when nothing was reported.
  AttemptState state = AttemptState::kLeased;
  // At most one attempt of a (trial, launch) is; only these count. A late report is kept without.
  bool authoritative = false;
  std::vector<std::string> worker_ids;  // Rank 0 first.
  bool has_report = false;              // False: `result` has its ids only.
  int64_t leased_at_ms = 0;
  int64_t started_at_ms = 0;  // Since the epoch, UTC; 0 when not known.
  int64_t ended_at_ms = 0;
  std::string outcome;  // What ended it, in words; "" for an ordinary report.
};

struct CampaignResults {
  Campaign campaign;
  std::string campaign_id;
  CampaignState state = CampaignState::kRunning;
  int64_t created_at_ms = 0;
  int64_t ended_at_ms = 0;  // 0: it has not ended.
  std::string reason;       // Why it ended, when it is not simply done.
  std::string source_yaml;
  std::string source_name;
  Machine machine;  // As detected by the workers that ran it, or as declared.
  std::vector<TrialRecord> trials;
  std::vector<AttemptRecord> attempts;
};

}  // namespace lastflop
