#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "coordinator/campaign_run.h"
#include "db/change.h"

// What becomes of trials and campaigns when something happens to an attempt: pure functions from
// what is known to the rows that change. docs/adr/0001-launches-and-attempts.md has the rules.
namespace lastflop {

// A finding says something about the plan that no repeat would change.
bool IsFinding(FailureKind kind);

// Why a report that claims success is none: no samples, a time that is not positive, a check that
// failed. "A wrong result never has a time."
std::optional<Failure> FaultOf(const AttemptResult& result);

// Why a trial can never be dispatched by this coordinator.
std::optional<Failure> WhyNeverDispatched(const TrialSpec& trial);

// The first report of an open attempt; its samples stay with a failure but count for nothing. The
// trial ends when this was its last launch, a finding, or the last of its allowed failures.
Change DecideReport(const CampaignRun& run, const AttemptResult& report, int64_t now_ms);

// An open attempt ends without its fault: `state` is kLost or kRefused. A report that came with it
// is stored without authority.
Change DecideLoss(const CampaignRun& run, const std::string& attempt_id, AttemptState state,
                  absl::string_view reason, int max_lost_attempts,
                  const std::optional<AttemptResult>& report, int64_t now_ms);

// An open attempt of which no report came long after its deadline: one of its own failures.
Change DecideTimeout(const CampaignRun& run, const std::string& attempt_id,
                     absl::string_view reason, int64_t now_ms);

// No set of workers can run the trial: it ends with `standing` and the reason, or, when workers
// only refused it, as lost_out.
Change DecideUnplaceable(const CampaignRun& run, size_t trial_index,
                         std::optional<Standing> standing, absl::string_view reason,
                         int64_t now_ms);

// Ends the campaign early: what is not done gets `state` and the reason. Open attempts are lost.
Change DecideStop(const CampaignRun& run, CampaignState campaign_state, TrialState trial_state,
                  absl::string_view reason, int64_t now_ms);

// No worker is left that may run anything: open trials without an open attempt are lost_out.
Change DecideGiveUp(const CampaignRun& run, absl::string_view reason, int64_t now_ms);

// Cancelled and lost_out trials become pending and the campaign runs again; empty when there is
// nothing to resume.
Change DecideResume(const CampaignRun& run, int64_t now_ms);

// Completes a change with what follows from it: trials of a point whose baseline failed are
// cancelled, or settled with what it was found to be, trials that the ceilings make pointless are
// pruned once the baselines are known, a campaign without open trials ends, events get the summary
// after all of it. Called once, last.
void Conclude(const CampaignRun& run, Change& change);

}  // namespace lastflop
