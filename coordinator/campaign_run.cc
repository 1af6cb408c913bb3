#include "coordinator/campaign_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

void IndexAttempt(size_t index, CampaignRun& run) {
  const AttemptRecord& attempt = run.results.attempts[index];
  run.attempt_index[attempt.result.attempt_id] = index;
  run.attempts_of_trial[run.trial_index.at(attempt.result.trial_id)].push_back(index);
}

void AddAttempt(const NewAttempt& leased, int64_t at_ms, CampaignRun& run) {
  run.results.attempts.push_back(leased.record);
  run.results.attempts.back().leased_at_ms = at_ms;
  IndexAttempt(run.results.attempts.size() - 1, run);
  ++run.results.trials[run.trial_index.at(leased.record.result.trial_id)].num_attempts;
}

void UpdateAttempt(const AttemptUpdate& update, int64_t at_ms, CampaignRun& run) {
  AttemptRecord& attempt = run.results.attempts[run.attempt_index.at(update.attempt_id)];
  attempt.state = update.state;
  if (update.state == AttemptState::kRunning) {
    attempt.started_at_ms = at_ms;
    return;
  }
  attempt.authoritative = update.authoritative;
  attempt.outcome = update.outcome;
  attempt.ended_at_ms = at_ms;
}

}  // namespace

CampaignRun MakeRun(CampaignResults results, const RunState& state) {
  CampaignRun run;
  run.results = std::move(results);
  run.has_machine = state.has_machine;
  run.resumed_at_ms = state.resumed_at_ms;
  run.wall_from_ms = state.wall_from_ms;
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    run.trial_index[run.results.trials[i].spec.trial_id] = i;
  }
  run.attempts_of_trial.resize(run.results.trials.size());
  for (size_t i = 0; i < run.results.attempts.size(); ++i) {
    IndexAttempt(i, run);
  }
  return run;
}

void ApplyToMemory(const Change& change, CampaignRun& run) {
  for (const NewAttempt& leased : change.leased) {
    AddAttempt(leased, change.at_ms, run);
  }
  for (const AttemptUpdate& update : change.attempts) {
    UpdateAttempt(update, change.at_ms, run);
  }
  for (const AttemptResult& report : change.reports) {
    AttemptRecord& attempt = run.results.attempts[run.attempt_index.at(report.attempt_id)];
    attempt.result = report;
    attempt.has_report = true;
  }
  for (const TrialRecord& trial : change.new_trials) {
    run.trial_index[trial.spec.trial_id] = run.results.trials.size();
    run.results.trials.push_back(trial);
    run.attempts_of_trial.emplace_back();
  }
  for (const TrialRecord& trial : change.trials) {
    TrialRecord& stored = run.results.trials[run.trial_index.at(trial.spec.trial_id)];
    const int num_attempts = stored.num_attempts;  // Counted above.
    stored = trial;
    stored.num_attempts = num_attempts;
  }
  if (change.campaign.has_value()) {
    run.results.state = change.campaign->state;
    run.results.reason = change.campaign->reason;
    run.results.ended_at_ms = change.campaign->ended_at_ms;
    run.resumed_at_ms = change.campaign->resumed_at_ms;
    run.wall_from_ms = change.campaign->wall_from_ms;
    if (change.campaign->machine.has_value()) {
      run.results.machine = *change.campaign->machine;
      run.has_machine = true;
    }
  }
}

bool TrialTally::all_accepted() const {
  return std::all_of(accepted.begin(), accepted.end(), [](bool done) { return done; });
}

TrialTally TallyOf(const CampaignRun& run, size_t trial_index) {
  TrialTally tally;
  tally.accepted.resize(static_cast<size_t>(run.results.campaign.measure.launches));
  for (const size_t index : run.attempts_of_trial[trial_index]) {
    const AttemptRecord& attempt = run.results.attempts[index];
    const auto launch = static_cast<size_t>(attempt.result.launch);
    switch (attempt.state) {
      case AttemptState::kLeased:
      case AttemptState::kRunning:
        tally.has_open = true;
        break;
      case AttemptState::kDone:
        if (attempt.authoritative && launch < tally.accepted.size()) {
          tally.accepted[launch] = true;
        }
        break;
      case AttemptState::kFailed:
        ++tally.num_own_failures;
        break;
      case AttemptState::kLost:
      case AttemptState::kRefused:
        tally.num_lost += attempt.leased_at_ms >= run.resumed_at_ms ? 1 : 0;
        break;
    }
  }
  return tally;
}

bool HasSuccess(const CampaignRun& run, size_t trial_index) {
  const std::vector<size_t>& attempts = run.attempts_of_trial[trial_index];
  return std::any_of(attempts.begin(), attempts.end(), [&run](size_t index) {
    const AttemptRecord& attempt = run.results.attempts[index];
    return attempt.state == AttemptState::kDone && attempt.authoritative;
  });
}

std::string LastOutcome(const CampaignRun& run, size_t trial_index) {
  const std::vector<size_t>& attempts = run.attempts_of_trial[trial_index];
  return attempts.empty() ? "" : run.results.attempts[attempts.back()].outcome;
}

namespace {

// What is measured, where that is not simply an intervention.
std::string SubjectOf(const TrialSpec& spec) {
  switch (spec.role) {
    case TrialRole::kCompare:
      return spec.round == 1 ? spec.intervention_id
                             : absl::StrCat("round ", spec.round, ": ", spec.intervention_id);
    case TrialRole::kConfirm:
      return absl::StrCat("round ", spec.round, ": ", spec.intervention_id, " again");
    case TrialRole::kStack:
      return "the stack";
    case TrialRole::kLeaveOneOut:
      return absl::StrCat("the stack without ", spec.intervention_id);
  }
  return spec.intervention_id;
}

}  // namespace

std::string TrialLabel(const CampaignRun& run, const TrialSpec& spec) {
  const std::vector<Point>& points = run.results.campaign.points;
  const auto point_index = static_cast<size_t>(spec.point_index);
  return absl::StrCat(SubjectOf(spec), spec.choice.empty() ? "" : " ", spec.choice, " at ",
                      point_index < points.size() ? points[point_index].Label() : "?");
}

}  // namespace lastflop
