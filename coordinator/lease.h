#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/attempt_allowance.h"
#include "coordinator/campaign_run.h"
#include "coordinator/outgoing.h"
#include "coordinator/scheduler.h"
#include "db/change.h"

// From a scheduler's decision to what is stored and sent. Pure.
namespace lastflop {

// The part of a launch key that does not tell generations of children apart.
std::string LaunchBase(const CampaignRun& run, const LeaseDecision& decision);

// "campaign-trial-a2": the trial's next attempt.
std::string NextAttemptId(const CampaignRun& run, size_t trial_index);

// What the attempts of a trial need on the machine of this run.
AttemptNeeds NeedsOf(const CampaignRun& run, const TrialSpec& trial);

// The rows of a lease: the attempt, and the trial, which now runs.
void AddLease(const CampaignRun& run, const LeaseDecision& decision, const std::string& attempt_id,
              const std::string& launch_key, std::chrono::milliseconds deadline, Change& change);

// One message per member, in order of rank. `run` has its campaign_json.
std::vector<LeaseMessage> MakeLeases(const CampaignRun& run, const LeaseDecision& decision,
                                     const std::string& attempt_id, const std::string& launch_key,
                                     std::chrono::milliseconds deadline);

}  // namespace lastflop
