#pragma once

#include "absl/strings/string_view.h"
#include "coordinator/campaign_run.h"
#include "db/change.h"

// The building blocks of a change: each adds rows and the events that watchers see of them.
namespace lastflop {

// Pending or running.
bool IsOpen(TrialState state);

// A trial as it starts: what is settled is done, and so is what this coordinator cannot run.
TrialRecord NewTrial(TrialSpec spec);

// A new state of a trial.
void AddTrial(const CampaignRun& run, TrialRecord trial, Change& change);

// The end of an open attempt.
void EndAttempt(const CampaignRun& run, const AttemptUpdate& update, Change& change);

// The end of the campaign; it keeps what is set of an update before.
void EndCampaign(const CampaignRun& run, CampaignState state, absl::string_view reason,
                 Change& change);

// The campaign's columns as they are, to be changed.
CampaignUpdate UpdateOf(const CampaignRun& run);

// The trial as it is after `change`.
const TrialRecord& TrialAfter(const CampaignRun& run, const Change& change, size_t trial_index);

}  // namespace lastflop
