#include "coordinator/changes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/trial_rules.h"
#include "planner/next_round.h"
#include "planner/prune.h"

namespace lastflop {
namespace {

// How a baseline's trial ended without a measurement; nullptr when it did not.
const TrialRecord* FailedBaseline(const CampaignRun& run, const Change& change,
                                  size_t trial_index) {
  const TrialRecord& trial = TrialAfter(run, change, trial_index);
  const bool ended = trial.state == TrialState::kFailed || trial.state == TrialState::kDone;
  const bool measured = trial.state == TrialState::kDone && !trial.failure.has_value() &&
                        !trial.spec.settled.has_value();
  return trial.spec.intervention_id == kBaselineId && ended && !measured ? &trial : nullptr;
}

bool HasOpenAttempt(const CampaignRun& run, const Change& change, size_t trial_index) {
  const std::vector<size_t>& attempts = run.attempts_of_trial[trial_index];
  return std::any_of(attempts.begin(), attempts.end(), [&](size_t index) {
    const AttemptRecord& attempt = run.results.attempts[index];
    const bool was_open =
        attempt.state == AttemptState::kLeased || attempt.state == AttemptState::kRunning;
    return was_open && std::none_of(change.attempts.begin(), change.attempts.end(),
                                    [&attempt](const AttemptUpdate& update) {
                                      return update.attempt_id == attempt.result.attempt_id &&
                                             update.state != AttemptState::kRunning;
                                    });
  });
}

// What a baseline without a measurement is at its point, when no repeat would change it.
std::optional<Standing> StandingOfFinding(const TrialRecord& baseline) {
  if (baseline.failure.has_value()) {
    switch (baseline.failure->kind) {
      case FailureKind::kInfeasible:
        return Standing::kInfeasible;
      case FailureKind::kUnsupported:
        return Standing::kUnsupported;
      default:
        return std::nullopt;
    }
  }
  const std::optional<Standing>& settled = baseline.spec.settled;
  const bool is_finding = settled == Standing::kInfeasible || settled == Standing::kUnsupported;
  return is_finding ? settled : std::nullopt;
}

// A trial at the point of a baseline without a measurement: it shares what was found of that, as
// where `validate` finds it; else it may run when the baseline is tried again.
void EndWithBaseline(const TrialRecord& baseline, TrialRecord& trial) {
  if (const std::optional<Standing> standing = StandingOfFinding(baseline)) {
    trial.state = TrialState::kDone;
    trial.reason =
        absl::StrCat("the baseline is ", ToWord(*standing), " at this point: ", baseline.reason);
    trial.spec.settled = standing;
    trial.spec.settled_reason = trial.reason;
  } else {
    trial.state = TrialState::kCancelled;
    trial.reason = absl::StrCat("no baseline at this point: ", baseline.reason);
  }
}

// Pairs need both arms, so without a baseline nothing can be measured at its point in its round.
void EndWithoutBaseline(const CampaignRun& run, Change& change) {
  const size_t num_trials = run.results.trials.size();
  for (size_t i = 0; i < num_trials; ++i) {
    const TrialRecord* baseline = FailedBaseline(run, change, i);
    if (baseline == nullptr) {
      continue;
    }
    const int point_index = baseline->spec.point_index;
    const int round = baseline->spec.round;
    const TrialRecord ended = *baseline;  // It may lie in `change`, which grows below.
    for (size_t k = 0; k < num_trials; ++k) {
      TrialRecord trial = TrialAfter(run, change, k);
      if (trial.spec.point_index == point_index && trial.spec.round == round &&
          IsOpen(trial.state) && !HasOpenAttempt(run, change, k)) {
        EndWithBaseline(ended, trial);
        AddTrial(run, std::move(trial), change);
      }
    }
  }
}

// What the planner decides once the last baseline is known. The change that makes it known carries
// the decision, so that no restart comes between.
void PruneByCeilings(const CampaignRun& run, Change& change) {
  if (!AwaitsBaseline(run.results)) {
    return;
  }
  CampaignRun after = run;
  ApplyToMemory(change, after);
  if (AwaitsBaseline(after.results)) {
    return;
  }
  const PruneDecision decision = DecidePruning(after.results);
  for (const ImpossibleClaim& claim : decision.impossible) {
    change.events.push_back({.kind = "campaign",
                             .intervention_id = claim.intervention_id,
                             .state = std::string(ToWord(after.results.state)),
                             .message = absl::StrCat("the claim of ", claim.intervention_id,
                                                     " is impossible: ", claim.reason)});
  }
  for (const PrunedTrial& pruned : decision.trials) {
    TrialRecord trial = TrialAfter(run, change, pruned.trial);
    trial.state = TrialState::kDone;
    trial.spec.settled = Standing::kPruned;
    trial.spec.settled_reason = pruned.reason;
    trial.reason = pruned.reason;
    AddTrial(run, std::move(trial), change);
  }
}

// A baseline that is infeasible at one point among others is a finding about that point. That of a
// later round ran before, as a variant: without it the round ends, and the campaign has results.
bool IsBaselineFailed(const CampaignRun& run, const Change& change) {
  bool has_baseline = false;
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    const TrialRecord& trial = TrialAfter(run, change, i);
    if (trial.spec.intervention_id != kBaselineId || trial.spec.round != 1) {
      continue;
    }
    const TrialRecord* failed = FailedBaseline(run, change, i);
    if (failed == nullptr) {
      has_baseline = true;
      continue;
    }
    const bool does_not_apply =
        failed->spec.settled.has_value() ||
        (failed->failure.has_value() && (failed->failure->kind == FailureKind::kInfeasible ||
                                         failed->failure->kind == FailureKind::kUnsupported));
    if (!does_not_apply) {
      return true;
    }
  }
  return !has_baseline;
}

CampaignSummary SummaryAfter(const CampaignRun& run, const Change& change) {
  CampaignSummary summary{
      .campaign_id = run.results.campaign_id,
      .name = run.results.campaign.name,
      .state = change.campaign.has_value() ? change.campaign->state : run.results.state,
      .created_at_ms = run.results.created_at_ms};
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    CountTrial(TrialAfter(run, change, i), summary);
  }
  for (const TrialRecord& trial : change.new_trials) {
    CountTrial(trial, summary);
  }
  return summary;
}

bool HasOpenTrial(const CampaignRun& run, const Change& change) {
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    if (IsOpen(TrialAfter(run, change, i).state)) {
      return true;
    }
  }
  return std::any_of(change.new_trials.begin(), change.new_trials.end(),
                     [](const TrialRecord& trial) { return IsOpen(trial.state); });
}

// Adds the trials that the planner wants next, in the change that ended the ones before: no restart
// comes between, and none is made twice. Returns why there are none, when there are none.
std::string AddNextRound(const CampaignRun& run, Change& change) {
  while (true) {
    CampaignRun after = run;
    ApplyToMemory(change, after);
    NextRound next = DecideNextRound(after.results);
    if (next.trials.empty()) {
      return std::move(next.message);
    }
    change.first_new_trial = static_cast<int64_t>(run.results.trials.size());
    change.events.push_back({.kind = "campaign",
                             .state = std::string(ToWord(after.results.state)),
                             .message = next.message});
    for (TrialSpec& spec : next.trials) {
      change.new_trials.push_back(NewTrial(std::move(spec)));
    }
    if (HasOpenTrial(run, change)) {
      return "";
    }
  }
}

}  // namespace

bool IsOpen(TrialState state) {
  return state == TrialState::kPending || state == TrialState::kRunning;
}

TrialRecord NewTrial(TrialSpec spec) {
  if (!spec.settled.has_value()) {
    if (const std::optional<Failure> failure = WhyNeverDispatched(spec)) {
      spec.settled = Standing::kUnsupported;
      spec.settled_reason = failure->message;
    }
  }
  TrialRecord trial;
  trial.state = spec.settled.has_value() ? TrialState::kDone : TrialState::kPending;
  trial.reason = spec.settled_reason;
  trial.spec = std::move(spec);
  return trial;
}

void AddTrial(const CampaignRun& run, TrialRecord trial, Change& change) {
  change.events.push_back(
      {.kind = "trial",
       .trial_id = trial.spec.trial_id,
       .intervention_id = trial.spec.intervention_id,
       .state = std::string(WordOf(trial)),
       .message = absl::StrCat(TrialLabel(run, trial.spec), trial.reason.empty() ? "" : ": ",
                               trial.reason)});
  for (TrialRecord& earlier : change.trials) {
    if (earlier.spec.trial_id == trial.spec.trial_id) {
      earlier = std::move(trial);
      return;
    }
  }
  change.trials.push_back(std::move(trial));
}

void EndAttempt(const CampaignRun& run, const AttemptUpdate& update, Change& change) {
  const AttemptRecord& attempt = run.results.attempts[run.attempt_index.at(update.attempt_id)];
  const TrialSpec& trial = run.results.trials[run.trial_index.at(attempt.result.trial_id)].spec;
  change.attempts.push_back(update);
  change.events.push_back(
      {.kind = "attempt",
       .trial_id = trial.trial_id,
       .intervention_id = trial.intervention_id,
       .state = std::string(ToWord(update.state)),
       .message = absl::StrCat(TrialLabel(run, trial), ", launch ", attempt.result.launch + 1,
                               " of ", run.results.campaign.measure.launches,
                               update.outcome.empty() ? "" : ": ", update.outcome)});
}

CampaignUpdate UpdateOf(const CampaignRun& run) {
  CampaignUpdate update{.state = run.results.state,
                        .reason = run.results.reason,
                        .resumed_at_ms = run.resumed_at_ms,
                        .wall_from_ms = run.wall_from_ms,
                        .ended_at_ms = run.results.ended_at_ms};
  if (run.has_machine) {
    update.machine = run.results.machine;
  }
  return update;
}

void EndCampaign(const CampaignRun& run, CampaignState state, absl::string_view reason,
                 Change& change) {
  if (!change.campaign.has_value()) {
    change.campaign = UpdateOf(run);
  }
  change.campaign->state = state;
  change.campaign->reason = std::string(reason);
  change.campaign->ended_at_ms = change.at_ms;
  change.events.push_back(
      {.kind = "campaign", .state = std::string(ToWord(state)), .message = std::string(reason)});
}

const TrialRecord& TrialAfter(const CampaignRun& run, const Change& change, size_t trial_index) {
  const TrialRecord& before = run.results.trials[trial_index];
  const auto changed = std::find_if(
      change.trials.begin(), change.trials.end(),
      [&before](const TrialRecord& trial) { return trial.spec.trial_id == before.spec.trial_id; });
  return changed == change.trials.end() ? before : *changed;
}

void Conclude(const CampaignRun& run, Change& change) {
  const bool goes_on = change.campaign.has_value()
                           ? change.campaign->state == CampaignState::kRunning
                           : run.results.state == CampaignState::kRunning;
  if (goes_on) {
    EndWithoutBaseline(run, change);
    PruneByCeilings(run, change);
    if (!HasOpenTrial(run, change)) {
      if (IsBaselineFailed(run, change)) {
        EndCampaign(run, CampaignState::kBaselineFailed, "the baseline gave no measurement",
                    change);
      } else if (const std::string why = AddNextRound(run, change); !HasOpenTrial(run, change)) {
        EndCampaign(run, CampaignState::kDone, why, change);
      }
    }
  }
  const CampaignSummary summary = SummaryAfter(run, change);
  for (CampaignEvent& event : change.events) {
    event.summary = summary;
  }
}

}  // namespace lastflop
