#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "common/campaign_summary.h"
#include "common/words.h"

// What one decision of the coordinator writes: plain data, made without the database and stored in
// one transaction by ChangeStore.
namespace lastflop {

struct NewAttempt {
  AttemptRecord record;  // Its result has the ids and the launch.
  std::string launch_key;
  std::chrono::milliseconds deadline{0};
};

// A new state of an attempt that is still leased or running.
struct AttemptUpdate {
  std::string attempt_id;
  AttemptState state = AttemptState::kRunning;
  bool authoritative = false;
  std::string outcome;
};

// Something that watchers see. `sequence` is given by the store.
struct CampaignEvent {
  int64_t sequence = 0;
  int64_t at_ms = 0;
  std::string kind;  // campaign, trial, attempt; progress is not stored.
  std::string trial_id;
  std::string intervention_id;
  std::string state;
  std::string message;
  std::string current;
  std::string best;
  double seconds_left = 0;
  CampaignSummary summary;  // After the event.
};

// The columns of a campaign that change.
struct CampaignUpdate {
  CampaignState state = CampaignState::kRunning;
  std::string reason;
  std::optional<Machine> machine;
  int64_t resumed_at_ms = 0;
  int64_t wall_from_ms = 0;
  int64_t ended_at_ms = 0;  // 0: it has not ended.
};

struct Change {
  std::string campaign_id;
  int64_t at_ms = 0;  // Of everything below.
  std::vector<NewAttempt> leased;
  std::vector<AttemptUpdate> attempts;
  std::vector<AttemptResult> reports;   // The first report of each; also late ones.
  std::vector<TrialRecord> trials;      // All but what is compared is written.
  std::vector<TrialRecord> new_trials;  // Behind those that are there.
  int64_t first_new_trial = 0;          // Their first index: how many are there.
  std::optional<CampaignUpdate> campaign;
  std::vector<CampaignEvent> events;

  bool empty() const {
    return leased.empty() && attempts.empty() && reports.empty() && trials.empty() &&
           new_trials.empty() && !campaign.has_value() && events.empty();
  }
};

}  // namespace lastflop
