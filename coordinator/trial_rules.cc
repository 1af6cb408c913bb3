#include "coordinator/trial_rules.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/changes.h"
#include "stats/stopping.h"

namespace lastflop {
namespace {

// Pairs and sampling time of the trial's accepted launches and `report`.
struct Measured {
  std::vector<Pair> pairs;
  double sampling_s = 0;

  void Add(const AttemptResult& result) {
    for (const PairSample& sample : result.samples) {
      pairs.push_back(sample.pair);
    }
    sampling_s += result.sampling_s;
  }
};

bool Converged(const CampaignRun& run, size_t trial_index, const AttemptResult& report) {
  Measured measured;
  for (const size_t index : run.attempts_of_trial[trial_index]) {
    const AttemptRecord& attempt = run.results.attempts[index];
    if (attempt.authoritative && !attempt.result.failure.has_value()) {
      measured.Add(attempt.result);
    }
  }
  measured.Add(report);
  const MeasureOptions& measure = run.results.campaign.measure;
  const absl::StatusOr<TrialLook> look =
      LookAtTrial(measured.pairs, TrialRuleOf(measure, static_cast<int>(measure.launches)),
                  std::chrono::duration<double>(measured.sampling_s), /*spent=*/0, /*seed=*/1);
  return look.ok() && look->converged;
}

void SetTrial(const CampaignRun& run, size_t trial_index, TrialState state,
              const std::optional<Failure>& failure, absl::string_view reason, Change& change) {
  TrialRecord trial = run.results.trials[trial_index];
  trial.state = state;
  trial.failure = failure;
  trial.reason = std::string(reason);
  AddTrial(run, std::move(trial), change);
}

void DecideSuccess(const CampaignRun& run, size_t trial_index, const AttemptResult& report,
                   Change& change) {
  EndAttempt(run,
             {.attempt_id = report.attempt_id, .state = AttemptState::kDone, .authoritative = true},
             change);
  TrialTally tally = TallyOf(run, trial_index);
  tally.accepted[static_cast<size_t>(report.launch)] = true;
  if (!tally.all_accepted()) {
    return;
  }
  TrialRecord trial = run.results.trials[trial_index];
  trial.state = TrialState::kDone;
  trial.converged = Converged(run, trial_index, report);
  trial.reason = trial.converged ? ""
                                 : absl::StrCat("not converged: the interval is wider than ",
                                                run.results.campaign.measure.half_width * 100,
                                                "% at the end of measure.max_time");
  AddTrial(run, std::move(trial), change);
}

void DecideFailure(const CampaignRun& run, size_t trial_index, const std::string& attempt_id,
                   const Failure& failure, Change& change) {
  const int64_t max_attempts = run.results.campaign.measure.max_attempts;
  const int num_failures = TallyOf(run, trial_index).num_own_failures + 1;
  const bool is_finding = IsFinding(failure.kind);
  const bool ends_trial = is_finding || num_failures >= max_attempts;
  EndAttempt(run,
             {.attempt_id = attempt_id,
              .state = AttemptState::kFailed,
              .authoritative = ends_trial,
              .outcome = absl::StrCat(ToWord(failure.kind), ": ", failure.message)},
             change);
  if (!ends_trial) {
    return;
  }
  const std::string reason = is_finding
                                 ? failure.message
                                 : absl::StrCat(failure.message, " (", num_failures, " attempts)");
  SetTrial(run, trial_index, is_finding ? TrialState::kDone : TrialState::kFailed, failure, reason,
           change);
}

}  // namespace

bool IsFinding(FailureKind kind) {
  return kind == FailureKind::kUnsupported || kind == FailureKind::kInfeasible ||
         kind == FailureKind::kWrongResult || kind == FailureKind::kImpossible;
}

std::optional<Failure> FaultOf(const AttemptResult& result) {
  for (const auto& [check, moment] :
       {std::pair(&result.check_before, "before"), std::pair(&result.check_after, "after")}) {
    if (!check->ran) {
      return Failure{.kind = FailureKind::kInternal,
                     .message = absl::StrCat("the report has no check ", moment, " timing")};
    }
    if (!check->ok) {
      return Failure{.kind = FailureKind::kWrongResult,
                     .message = absl::StrCat("the check ", moment, " timing failed: max error ",
                                             check->max_error, ", tolerance ", check->tolerance,
                                             check->detail.empty() ? "" : ", ", check->detail)};
    }
  }
  if (result.samples.empty()) {
    return Failure{.kind = FailureKind::kInternal, .message = "the report has no samples"};
  }
  for (const PairSample& sample : result.samples) {
    const double least = std::min(sample.pair.baseline_us, sample.pair.variant_us);
    if (!(least > 0) || !std::isfinite(sample.pair.baseline_us + sample.pair.variant_us)) {
      return Failure{.kind = FailureKind::kImpossible,
                     .message = absl::StrCat("draw ", sample.pair.draw, " took ", least, " us")};
    }
  }
  return std::nullopt;
}

std::optional<Failure> WhyNeverDispatched(const TrialSpec& trial) {
  if (trial.baseline.process_env != trial.variant.process_env) {
    return Failure{.kind = FailureKind::kUnsupported,
                   .message =
                       "process.env differs between baseline and variant: the two arms of "
                       "a pair share one process, and unpaired launches are not compared"};
  }
  return std::nullopt;
}

Change DecideReport(const CampaignRun& run, const AttemptResult& report, int64_t now_ms) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  const size_t trial_index = run.trial_index.at(report.trial_id);
  change.reports.push_back(report);
  AttemptResult& stored = change.reports.back();
  if (!stored.failure.has_value()) {
    stored.failure = FaultOf(stored);
  }
  if (stored.failure.has_value()) {
    DecideFailure(run, trial_index, stored.attempt_id, *stored.failure, change);
  } else {
    DecideSuccess(run, trial_index, stored, change);
  }
  return change;
}

Change DecideLoss(const CampaignRun& run, const std::string& attempt_id, AttemptState state,
                  absl::string_view reason, int max_lost_attempts,
                  const std::optional<AttemptResult>& report, int64_t now_ms) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  EndAttempt(run, {.attempt_id = attempt_id, .state = state, .outcome = std::string(reason)},
             change);
  if (report.has_value()) {
    change.reports.push_back(*report);
  }
  const AttemptRecord& attempt = run.results.attempts[run.attempt_index.at(attempt_id)];
  const size_t trial_index = run.trial_index.at(attempt.result.trial_id);
  const int num_lost = TallyOf(run, trial_index).num_lost + 1;
  if (num_lost >= max_lost_attempts) {
    SetTrial(run, trial_index, TrialState::kLostOut, std::nullopt,
             absl::StrCat(num_lost, " attempts were lost, the last one: ", reason), change);
  }
  return change;
}

Change DecideTimeout(const CampaignRun& run, const std::string& attempt_id,
                     absl::string_view reason, int64_t now_ms) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  const AttemptRecord& attempt = run.results.attempts[run.attempt_index.at(attempt_id)];
  DecideFailure(run, run.trial_index.at(attempt.result.trial_id), attempt_id,
                {.kind = FailureKind::kTimeout, .message = std::string(reason)}, change);
  return change;
}

Change DecideUnplaceable(const CampaignRun& run, size_t trial_index,
                         std::optional<Standing> standing, absl::string_view reason,
                         int64_t now_ms) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  TrialRecord trial = run.results.trials[trial_index];
  trial.reason = std::string(reason);
  if (standing.has_value()) {
    trial.state = TrialState::kDone;
    trial.spec.settled = standing;
    trial.spec.settled_reason = std::string(reason);
  } else {
    trial.state = TrialState::kLostOut;
  }
  AddTrial(run, std::move(trial), change);
  return change;
}

Change DecideStop(const CampaignRun& run, CampaignState campaign_state, TrialState trial_state,
                  absl::string_view reason, int64_t now_ms) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  for (const AttemptRecord& attempt : run.results.attempts) {
    if (attempt.state == AttemptState::kLeased || attempt.state == AttemptState::kRunning) {
      EndAttempt(run,
                 {.attempt_id = attempt.result.attempt_id,
                  .state = AttemptState::kLost,
                  .outcome = std::string(reason)},
                 change);
    }
  }
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    if (IsOpen(run.results.trials[i].state)) {
      SetTrial(run, i, trial_state, std::nullopt, reason, change);
    }
  }
  EndCampaign(run, campaign_state, reason, change);
  return change;
}

Change DecideGiveUp(const CampaignRun& run, absl::string_view reason, int64_t now_ms) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    if (IsOpen(run.results.trials[i].state) && !TallyOf(run, i).has_open) {
      SetTrial(run, i, TrialState::kLostOut, std::nullopt, reason, change);
    }
  }
  return change;
}

Change DecideResume(const CampaignRun& run, int64_t now_ms) {
  Change change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  bool has_pending = false;
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    const TrialState state = run.results.trials[i].state;
    if (state == TrialState::kCancelled || state == TrialState::kLostOut) {
      SetTrial(run, i, TrialState::kPending, std::nullopt, "", change);
      has_pending = true;
    } else if (IsOpen(state)) {
      if (!run.results.trials[i].reason.empty()) {
        SetTrial(run, i, state, std::nullopt, "", change);  // It no longer waits for a budget.
      }
      has_pending = true;
    }
  }
  if (!has_pending) {
    return Change{.campaign_id = run.results.campaign_id, .at_ms = now_ms};
  }
  if (run.results.state != CampaignState::kRunning || !change.trials.empty()) {
    change.campaign = CampaignUpdate{
        .state = CampaignState::kRunning, .resumed_at_ms = now_ms, .wall_from_ms = now_ms};
    if (run.has_machine) {
      change.campaign->machine = run.results.machine;
    }
    change.events.push_back({.kind = "campaign", .state = "running", .message = "resumed"});
  }
  return change;
}

}  // namespace lastflop
