#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/campaign_results.h"
#include "db/campaign_reader.h"
#include "db/change.h"

namespace lastflop {

// A campaign that runs, as the coordinator has it in memory: what is stored, indexed.
struct CampaignRun {
  CampaignResults results;
  bool has_machine = false;  // results.machine is the detected one, and its attempts stay on it.
  int64_t resumed_at_ms = 0;
  int64_t wall_from_ms = 0;
  // While all that runs of it is held up: until when wall_from_ms has been put off.
  std::optional<int64_t> paused_until_ms;
  std::map<std::string, size_t> trial_index;           // By trial_id.
  std::map<std::string, size_t> attempt_index;         // By attempt_id.
  std::vector<std::vector<size_t>> attempts_of_trial;  // By trial index: attempt indices.
  std::string campaign_json;                           // For leases; made at the first.
  std::vector<size_t> order;  // planner: OrderTrials(), as far as it is known; else the trials'.
  std::string best;           // planner: BestSoFar(), as of the last end.
};

CampaignRun MakeRun(CampaignResults results, const RunState& state);

// Does to `run` what ChangeStore::Apply did to the database.
void ApplyToMemory(const Change& change, CampaignRun& run);

// How a trial's attempts went.
struct TrialTally {
  std::vector<bool> accepted;  // By launch.
  int num_own_failures = 0;    // Ever.
  int num_lost = 0;            // Lost or refused since the campaign was started or resumed.
  bool has_open = false;

  bool all_accepted() const;
};
TrialTally TallyOf(const CampaignRun& run, size_t trial_index);

// Whether some attempt of the trial gave an accepted measurement.
bool HasSuccess(const CampaignRun& run, size_t trial_index);

// How the trial's last attempt ended, in words.
std::string LastOutcome(const CampaignRun& run, size_t trial_index);

// "expert-parallel at decode b64 c4096"; with its choice, when it has one.
std::string TrialLabel(const CampaignRun& run, const TrialSpec& spec);

}  // namespace lastflop
