// What the engine does by itself: end what is overdue, give work to idle workers.

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/campaign_json.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "coordinator/changes.h"
#include "coordinator/engine.h"
#include "coordinator/lease.h"
#include "coordinator/trial_rules.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;

std::string Seconds(milliseconds duration) {
  return absl::StrCat(static_cast<double>(duration.count()) / 1000, " s");
}

// Workers that take their time to connect use up no budget: else a campaign could end, and be
// resumed, for ever without an attempt.
bool IsOverBudget(const CampaignRun& run, int64_t now_ms, std::chrono::milliseconds grace) {
  const std::optional<std::chrono::milliseconds>& wall = run.results.campaign.budget.wall;
  const bool has_begun = std::any_of(
      run.results.attempts.begin(), run.results.attempts.end(),
      [&run](const AttemptRecord& attempt) { return attempt.leased_at_ms >= run.resumed_at_ms; });
  return wall.has_value() && has_begun && now_ms - run.wall_from_ms >= (*wall + grace).count();
}

}  // namespace

absl::Status Engine::Sweep(const std::map<SessionId, std::chrono::milliseconds>& last_seen) {
  LASTFLOP_RETURN_IF_ERROR(ExpireWorkers(last_seen));
  LASTFLOP_RETURN_IF_ERROR(ExpireAttempts());
  LASTFLOP_RETURN_IF_ERROR(PauseBudgets());
  LASTFLOP_RETURN_IF_ERROR(EndBudgets());
  LASTFLOP_RETURN_IF_ERROR(GiveOutWork());
  LASTFLOP_RETURN_IF_ERROR(GiveUpWithoutWorkers());
  for (auto run = runs_.begin(); run != runs_.end();) {
    run = run->second.results.state == CampaignState::kRunning ? std::next(run) : runs_.erase(run);
  }
  return absl::OkStatus();
}

absl::Status Engine::ExpireWorkers(
    const std::map<SessionId, std::chrono::milliseconds>& last_seen) {
  const std::chrono::milliseconds now = clock_.Monotonic();
  for (auto& [worker_id, worker] : workers_.workers()) {
    if (const auto seen = last_seen.find(worker.session); seen != last_seen.end()) {
      worker.last_seen = std::max(worker.last_seen, seen->second);
    }
    const std::chrono::milliseconds silence = now - worker.last_seen;
    if (worker.is_lost || silence <= options_.timeout) {
      continue;
    }
    worker.is_lost = true;
    workers_changed_at_ = now;
    const std::string reason =
        absl::StrCat("worker ", worker_id, " was silent for ", Seconds(silence));
    LASTFLOP_RETURN_IF_ERROR(
        Say(LogSeverity::kWarning, "worker_lost", {{"worker_id", worker_id}, {"reason", reason}}));
    LASTFLOP_RETURN_IF_ERROR(LoseAttemptsOf(worker, reason));
    LASTFLOP_RETURN_IF_ERROR(SaveWorker(worker));
  }
  return absl::OkStatus();
}

absl::Status Engine::ExpireAttempts() {
  const std::chrono::milliseconds now = clock_.Monotonic();
  std::vector<std::pair<std::string, std::string>> lost;
  std::vector<std::string> overdue;
  for (const auto& [attempt_id, open] : open_) {
    if (!open.missing.empty() && now > open.missing_until) {
      lost.emplace_back(attempt_id, absl::StrCat("the coordinator restarted and worker ",
                                                 *open.missing.begin(), " did not come back"));
    } else if (now > open.expires) {
      overdue.push_back(attempt_id);
    }
  }
  for (const auto& [attempt_id, reason] : lost) {
    LASTFLOP_RETURN_IF_ERROR(Lose(attempt_id, AttemptState::kLost, reason));
  }
  for (const std::string& attempt_id : overdue) {
    CampaignRun& run = runs_.at(open_.at(attempt_id).campaign_id);
    const std::string reason =
        absl::StrCat("no report within its deadline of ", Seconds(open_.at(attempt_id).deadline));
    LASTFLOP_RETURN_IF_ERROR(Commit(run, DecideTimeout(run, attempt_id, reason, clock_.NowMs())));
    ++generations_[open_.at(attempt_id).gang_key];
    Release(attempt_id, reason);
  }
  return absl::OkStatus();
}

// A campaign uses up no budget while all that runs of it waits for devices on which other processes
// measure. After a restart the time since the last event does not count (LoadRun()), so that it is
// enough to store where a pause ends.
absl::Status Engine::PauseBudgets() {
  std::map<std::string, bool> all_held_up;  // Of campaigns that have open attempts.
  for (const auto& [attempt_id, open] : open_) {
    bool& all = all_held_up.try_emplace(open.campaign_id, true).first->second;
    all = all && !open.held_up.empty();
  }
  const int64_t now_ms = clock_.NowMs();
  for (CampaignRun* run : RunsByAge()) {
    const auto held_up = all_held_up.find(run->results.campaign_id);
    const bool was_paused = run->paused_until_ms.has_value();
    if (was_paused) {
      run->wall_from_ms += now_ms - *run->paused_until_ms;
    }
    if (held_up != all_held_up.end() && held_up->second) {
      run->paused_until_ms = now_ms;
    } else if (was_paused) {
      run->paused_until_ms.reset();
      Change change{.campaign_id = run->results.campaign_id, .at_ms = now_ms};
      change.campaign = UpdateOf(*run);
      LASTFLOP_RETURN_IF_ERROR(Commit(*run, std::move(change)));
    }
  }
  return absl::OkStatus();
}

absl::Status Engine::EndBudgets() {
  for (CampaignRun* run : RunsByAge()) {
    if (IsOverBudget(*run, clock_.NowMs(), GraceOfOpenAttempts(*run))) {
      const std::string reason = absl::StrCat(
          "budget.wall of ", Seconds(*run->results.campaign.budget.wall), " is used up");
      LASTFLOP_RETURN_IF_ERROR(
          Stop(*run, CampaignState::kOutOfBudget, TrialState::kPending, reason));
    }
  }
  return absl::OkStatus();
}

milliseconds Engine::GraceOfOpenAttempts(const CampaignRun& run) const {
  milliseconds grace{0};
  for (const auto& [attempt_id, open] : open_) {
    if (open.campaign_id == run.results.campaign_id) {
      grace = std::max(grace, open.wall_grace);
    }
  }
  return grace;
}

absl::Status Engine::GiveOutWork() {
  const std::vector<SchedulerWorker> workers = workers_.ForScheduler();
  const bool has_idle = std::any_of(workers.begin(), workers.end(),
                                    [](const SchedulerWorker& worker) { return worker.is_idle; });
  const std::vector<CampaignRun*> runs = RunsByAge();
  if (!has_idle || runs.empty()) {
    return absl::OkStatus();
  }
  std::vector<SchedulerCampaign> campaigns;
  for (const CampaignRun* run : runs) {
    campaigns.push_back(
        {.run = run, .may_lease = !IsOverBudget(*run, clock_.NowMs(), milliseconds(0))});
  }
  const Schedule schedule = MakeSchedule(campaigns, workers, options_.trials_per_cohort);
  for (const LeaseDecision& decision : schedule.leases) {
    LASTFLOP_RETURN_IF_ERROR(MakeLease(*runs[decision.campaign], decision));
  }
  return SettleUnplaceable(schedule, runs);
}

absl::Status Engine::MakeLease(CampaignRun& run, const LeaseDecision& decision) {
  const WorkerEntry* leader = workers_.Find(decision.worker_ids.front());
  LASTFLOP_RETURN_IF_ERROR(BindMachine(run, *leader));
  const std::string attempt_id = NextAttemptId(run, decision.trial);
  const std::string base = LaunchBase(run, decision);
  const std::string launch_key = absl::StrCat(base, "/", incarnation_, ".", generations_[base]);
  const MeasureOptions& measure = run.results.campaign.measure;
  const AttemptNeeds needs = NeedsOf(run, run.results.trials[decision.trial].spec);
  const milliseconds deadline = AttemptDeadline(measure, needs, options_.attempt_deadline);
  const std::vector<LeaseMessage> leases =
      MakeLeases(run, decision, attempt_id, launch_key, deadline);
  Change change{.campaign_id = run.results.campaign_id, .at_ms = clock_.NowMs()};
  AddLease(run, decision, attempt_id, launch_key, deadline, change);
  const std::string current = change.events.back().current;
  LASTFLOP_RETURN_IF_ERROR(Commit(run, std::move(change)));

  OpenAttempt& open = open_[attempt_id];
  open.campaign_id = run.results.campaign_id;
  open.gang_key = base;
  open.worker_ids = decision.worker_ids;
  open.deadline = deadline;
  open.wall_grace = WallGrace(measure, needs, options_.attempt_deadline);
  open.expires = clock_.Monotonic() + deadline + options_.deadline_slack;
  for (size_t rank = 0; rank < decision.worker_ids.size(); ++rank) {
    WorkerEntry& worker = *workers_.Find(decision.worker_ids[rank]);
    worker.attempts.insert(attempt_id);
    worker.holds_host = decision.worker_ids.size() > 1 || worker.machine.backend == "cpu";
    worker.current = current;
    Send(worker, leases[rank]);
  }
  return absl::OkStatus();
}

absl::Status Engine::BindMachine(CampaignRun& run, const WorkerEntry& worker) {
  if (!run.has_machine) {
    Change change{.campaign_id = run.results.campaign_id, .at_ms = clock_.NowMs()};
    change.campaign = UpdateOf(run);
    change.campaign->machine = worker.machine;
    LASTFLOP_RETURN_IF_ERROR(Commit(run, std::move(change)));
  }
  if (run.campaign_json.empty()) {
    Campaign campaign = run.results.campaign;
    if (campaign.machine_auto) {
      campaign.machine = run.results.machine;
    }
    run.campaign_json = ToJson(campaign);
  }
  return absl::OkStatus();
}

absl::Status Engine::SettleUnplaceable(const Schedule& schedule,
                                       const std::vector<CampaignRun*>& runs) {
  const std::chrono::milliseconds now = clock_.Monotonic();
  std::map<std::pair<std::string, std::string>, std::chrono::milliseconds> since;
  for (const UnplaceableTrial& unplaceable : schedule.unplaceable) {
    CampaignRun& run = *runs[unplaceable.campaign];
    const TrialRecord& trial = run.results.trials[unplaceable.trial];
    const std::pair key(run.results.campaign_id, trial.spec.trial_id);
    const auto earlier = unplaceable_since_.find(key);
    const std::chrono::milliseconds from =
        earlier == unplaceable_since_.end() ? now : earlier->second;
    since[key] = from;
    if (now - std::max(from, workers_changed_at_) < GraceForWorkers() ||
        run.results.state != CampaignState::kRunning || !IsOpen(trial.state)) {
      continue;
    }
    // What could run once may run again: it is not unsupported, its workers went away. Nor is what
    // a quarantined worker could run.
    const std::string quarantine = QuarantineThatKeeps(run, unplaceable.trial);
    const bool lost_out = unplaceable.only_refused || trial.num_attempts > 0 || !quarantine.empty();
    const std::string reason =
        unplaceable.only_refused
            ? absl::StrCat("refused by every worker: ", LastOutcome(run, unplaceable.trial))
            : absl::StrCat(unplaceable.reason, quarantine.empty() ? "" : ", and ", quarantine);
    LASTFLOP_RETURN_IF_ERROR(Commit(
        run, DecideUnplaceable(run, unplaceable.trial,
                               lost_out ? std::nullopt : std::optional(Standing::kUnsupported),
                               reason, clock_.NowMs())));
  }
  unplaceable_since_ = std::move(since);
  return absl::OkStatus();
}

std::string Engine::QuarantineThatKeeps(const CampaignRun& run, size_t trial_index) const {
  const std::vector<SchedulerWorker> quarantined = workers_.Quarantined();
  std::vector<SchedulerWorker> all = workers_.ForScheduler();
  all.insert(all.end(), quarantined.begin(), quarantined.end());
  if (quarantined.empty() || !CouldPlace(run, trial_index, all)) {
    return "";
  }
  return absl::StrJoin(quarantined, ", ", [this](std::string* out, const SchedulerWorker& worker) {
    absl::StrAppend(out, "worker ", worker.worker_id, " is quarantined (",
                    workers_.workers().at(worker.worker_id).row.reason, ")");
  });
}

std::chrono::milliseconds Engine::GraceForWorkers() const {
  const auto num_connected =
      std::count_if(workers_.workers().begin(), workers_.workers().end(), [](const auto& entry) {
        return entry.second.session != 0 && !entry.second.is_lost && !entry.second.is_quarantined;
      });
  const bool all_are_here =
      options_.expected_workers > 0 && num_connected >= options_.expected_workers;
  return all_are_here ? std::chrono::milliseconds(0) : options_.gang_grace;
}

absl::Status Engine::GiveUpWithoutWorkers() {
  std::string quarantined;
  for (const auto& [worker_id, worker] : workers_.workers()) {
    const WorkerState state = StateOf(worker);
    if (state == WorkerState::kIdle || state == WorkerState::kBusy) {
      return absl::OkStatus();
    }
    if (state == WorkerState::kQuarantined && worker.session != 0) {
      quarantined = absl::StrCat("worker ", worker_id, " is quarantined (", worker.row.reason,
                                 ") and no other is connected");
    }
  }
  if (quarantined.empty() || clock_.Monotonic() - workers_changed_at_ < options_.gang_grace) {
    return absl::OkStatus();
  }
  for (CampaignRun* run : RunsByAge()) {
    Change change = DecideGiveUp(*run, quarantined, clock_.NowMs());
    if (!change.empty()) {
      LASTFLOP_RETURN_IF_ERROR(Commit(*run, std::move(change)));
    }
  }
  return absl::OkStatus();
}

}  // namespace lastflop
