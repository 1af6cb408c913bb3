#include "coordinator/engine.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/campaign_json.h"
#include "common/expand_trials.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "coordinator/changes.h"
#include "coordinator/lease.h"
#include "coordinator/trial_rules.h"
#include "planner/prune.h"
#include "planner/rank.h"
#include "planner/trial_order.h"

namespace lastflop {
namespace {

absl::Status CheckRunnable(const Campaign& campaign) {
  if (campaign.points.empty()) {
    return absl::InvalidArgumentError("the campaign has no points");
  }
  if (campaign.measure.launches < 1 || campaign.measure.max_attempts < 1) {
    return absl::InvalidArgumentError("measure.launches and measure.max_attempts are at least 1");
  }
  if (campaign.budget.rounds < 1) {
    return absl::InvalidArgumentError("budget.rounds is at least 1");
  }
  if (campaign.fidelity == Fidelity::kPredicted) {
    return absl::InvalidArgumentError(
        "fidelity predicted runs nothing: full and shard can be submitted");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TrialRecord>> FirstTrials(const Campaign& campaign) {
  LASTFLOP_ASSIGN_OR_RETURN(std::vector<TrialSpec> specs, ExpandTrials(campaign));
  std::vector<TrialRecord> trials;
  for (TrialSpec& spec : specs) {
    trials.push_back(NewTrial(std::move(spec)));
  }
  return trials;
}

}  // namespace

Engine::Engine(Database& database, const Clock& clock, const CoordinatorOptions& options,
               EventBus& events)
    : database_(database),
      clock_(clock),
      options_(options),
      events_(events),
      changes_(database),
      campaigns_(database),
      worker_store_(database),
      workers_(options),
      incarnation_(absl::StrCat(absl::Hex(clock.NowMs()))) {}

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(Database& database, const Clock& clock,
                                                       const CoordinatorOptions& options,
                                                       EventBus& events) {
  std::unique_ptr<Engine> engine(new Engine(database, clock, options, events));
  LASTFLOP_RETURN_IF_ERROR(engine->Load());
  LASTFLOP_RETURN_IF_ERROR(
      engine->Say(LogSeverity::kInfo, "coordinator_started", {{"pid", absl::StrCat(getpid())}}));
  return engine;
}

absl::Status Engine::Load() {
  workers_changed_at_ = clock_.Monotonic();
  LASTFLOP_RETURN_IF_ERROR(worker_store_.TrimLogs());
  LASTFLOP_ASSIGN_OR_RETURN(std::vector<WorkerRow> rows, worker_store_.List());
  for (WorkerRow& row : rows) {
    if (row.state != WorkerState::kLost) {
      row.state = WorkerState::kLost;
      LASTFLOP_RETURN_IF_ERROR(worker_store_.Save(row));
    }
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<CampaignSummary> summaries, ListCampaigns(database_));
  for (const CampaignSummary& summary : summaries) {
    if (summary.state != CampaignState::kRunning) {
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(CampaignRun * run, LoadRun(summary.campaign_id));
    // budget.wall is not used up while no coordinator runs. Concluding catches up with what a
    // coordinator that was killed had no time for.
    Change change{.campaign_id = summary.campaign_id, .at_ms = clock_.NowMs()};
    change.campaign = UpdateOf(*run);
    LASTFLOP_RETURN_IF_ERROR(Commit(*run, std::move(change)));
  }
  return absl::OkStatus();
}

absl::StatusOr<CampaignRun*> Engine::LoadRun(const std::string& campaign_id) {
  LASTFLOP_ASSIGN_OR_RETURN(CampaignResults results, ReadCampaign(database_, campaign_id));
  LASTFLOP_ASSIGN_OR_RETURN(RunState state, ReadRunState(database_, campaign_id));
  state.wall_from_ms += std::max<int64_t>(0, clock_.NowMs() - state.last_event_at_ms);
  CampaignRun& run = runs_[campaign_id] = MakeRun(std::move(results), state);
  run.best = BestSoFar(run.results);
  const std::chrono::milliseconds now = clock_.Monotonic();
  for (const AttemptRecord& attempt : run.results.attempts) {
    if (attempt.state == AttemptState::kLeased || attempt.state == AttemptState::kRunning) {
      OpenAttempt& open = open_[attempt.result.attempt_id];
      open.campaign_id = campaign_id;
      open.worker_ids = attempt.worker_ids;
      open.deadline = state.deadlines[attempt.result.attempt_id];
      const size_t trial = run.trial_index.at(attempt.result.trial_id);
      open.wall_grace =
          WallGrace(run.results.campaign.measure, NeedsOf(run, run.results.trials[trial].spec),
                    options_.attempt_deadline);
      open.expires = now + open.deadline + options_.deadline_slack;
      open.missing.insert(attempt.worker_ids.begin(), attempt.worker_ids.end());
      open.missing_until = now + std::max(options_.timeout, options_.reconnect);
    }
  }
  return &run;
}

absl::StatusOr<SubmitAnswer> Engine::Submit(const Submission& submission) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::optional<std::string> earlier,
                            campaigns_.FindSubmission(submission.submission_id));
  if (earlier.has_value()) {
    LASTFLOP_ASSIGN_OR_RETURN(const CampaignResults results, ReadCampaign(database_, *earlier));
    if (ToJson(results.campaign) != ToJson(submission.campaign)) {
      return absl::InvalidArgumentError(
          absl::StrCat("submission id ", submission.submission_id, " is campaign ", *earlier,
                       ", which is another one: an id repeats one submission only"));
    }
    return SubmitAnswer{*earlier, static_cast<int>(results.trials.size())};
  }
  LASTFLOP_RETURN_IF_ERROR(CheckRunnable(submission.campaign));
  CampaignResults results;
  results.created_at_ms = clock_.NowMs();
  const uint64_t random = CounterRandom(
      options_.seed ^ static_cast<uint64_t>(results.created_at_ms), /*stream=*/3, ++num_submitted_);
  results.campaign_id =
      absl::StrCat("c", absl::Hex(static_cast<uint32_t>(random >> 32), absl::kZeroPad8));
  results.campaign = submission.campaign;
  results.machine = submission.campaign.machine;
  results.source_yaml = submission.source_yaml;
  results.source_name = submission.source_name;
  LASTFLOP_ASSIGN_OR_RETURN(results.trials, FirstTrials(submission.campaign));

  CampaignEvent event{.kind = "campaign", .state = "running", .message = "submitted"};
  event.summary = Summarize(results);
  LASTFLOP_RETURN_IF_ERROR(campaigns_.Insert(results, submission.submission_id, event));
  const SubmitAnswer answer{results.campaign_id, static_cast<int>(results.trials.size())};
  CampaignRun& run = runs_[answer.campaign_id] =
      MakeRun(std::move(results), {.resumed_at_ms = clock_.NowMs(), .wall_from_ms = event.at_ms});
  LASTFLOP_RETURN_IF_ERROR(
      Commit(run, Change{.campaign_id = answer.campaign_id, .at_ms = clock_.NowMs()}));
  events_.Notify();
  return answer;
}

absl::StatusOr<int> Engine::Cancel(const std::string& campaign_id) {
  CampaignRun* run = FindRun(campaign_id);
  if (run == nullptr) {
    // It is over, or it is not there.
    LASTFLOP_RETURN_IF_ERROR(ReadRunState(database_, campaign_id).status());
    return 0;
  }
  const CampaignSummary before = Summarize(run->results);
  LASTFLOP_RETURN_IF_ERROR(
      Stop(*run, CampaignState::kCancelled, TrialState::kCancelled, "cancelled"));
  return before.num_pending + before.num_running;
}

absl::Status Engine::Stop(CampaignRun& run, CampaignState campaign_state, TrialState trial_state,
                          const std::string& reason) {
  Change change = DecideStop(run, campaign_state, trial_state, reason, clock_.NowMs());
  std::vector<std::string> ended;
  for (const AttemptUpdate& update : change.attempts) {
    ended.push_back(update.attempt_id);
  }
  LASTFLOP_RETURN_IF_ERROR(Commit(run, std::move(change)));
  for (const std::string& attempt_id : ended) {
    Release(attempt_id, absl::StrCat("the campaign ended: ", reason));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> Engine::Resume(const std::string& campaign_id) {
  CampaignRun* run = FindRun(campaign_id);
  if (run == nullptr) {
    LASTFLOP_ASSIGN_OR_RETURN(run, LoadRun(campaign_id));
  }
  Change change = DecideResume(*run, clock_.NowMs());
  if (!change.empty()) {
    LASTFLOP_RETURN_IF_ERROR(Commit(*run, std::move(change)));
  }
  const int num_pending = Summarize(run->results).num_pending;
  if (run->results.state != CampaignState::kRunning) {
    runs_.erase(campaign_id);
  }
  return num_pending;
}

absl::Status Engine::Commit(CampaignRun& run, Change change) {
  Conclude(run, change);
  if (change.empty()) {
    return absl::OkStatus();
  }
  for (CampaignEvent& event : change.events) {
    FillProgress(run, event);
  }
  LASTFLOP_RETURN_IF_ERROR(changes_.Apply(change));
  ApplyToMemory(change, run);
  if (!change.reports.empty()) {
    run.best = BestSoFar(run.results);
  }
  if (!change.new_trials.empty()) {
    run.order.clear();  // Another round has its own.
  }
  if (run.order.empty() && !AwaitsBaseline(run.results)) {
    run.order = OrderTrials(run.results);  // Whatever is known later: cohorts stay as they are.
  }
  if (!change.events.empty()) {
    events_.Notify();
  }
  return absl::OkStatus();
}

void Engine::FillProgress(const CampaignRun& run, CampaignEvent& event) const {
  event.best = run.best;
  event.seconds_left = event.summary.state == CampaignState::kRunning ? SecondsLeft(run) : 0;
  if (!event.current.empty()) {
    return;
  }
  for (const auto& [attempt_id, open] : open_) {
    const auto found = run.attempt_index.find(attempt_id);
    if (found != run.attempt_index.end()) {
      const AttemptResult& ids = run.results.attempts[found->second].result;
      event.current =
          absl::StrCat(TrialLabel(run, run.results.trials[run.trial_index.at(ids.trial_id)].spec),
                       ", launch ", ids.launch + 1, " of ", run.results.campaign.measure.launches);
      return;
    }
  }
}

double Engine::SecondsLeft(const CampaignRun& run) const {
  double total_ms = 0;
  int num_ended = 0;
  int num_open = 0;
  for (const AttemptRecord& attempt : run.results.attempts) {
    if (attempt.state == AttemptState::kDone || attempt.state == AttemptState::kFailed) {
      total_ms += static_cast<double>(attempt.ended_at_ms - attempt.leased_at_ms);
      ++num_ended;
    }
    num_open += attempt.ended_at_ms == 0 ? 1 : 0;
  }
  if (num_ended == 0) {
    return 0;
  }
  int num_left = 0;
  for (size_t i = 0; i < run.results.trials.size(); ++i) {
    if (IsOpen(run.results.trials[i].state)) {
      const TrialTally tally = TallyOf(run, i);
      num_left += static_cast<int>(std::count(tally.accepted.begin(), tally.accepted.end(), false));
    }
  }
  return total_ms / num_ended * num_left / std::max(1, num_open) / 1000;
}

void Engine::Send(const WorkerEntry& worker, CoordinatorMessage message) {
  if (worker.session != 0) {
    outgoing_.push_back({.session = worker.session, .message = std::move(message)});
  }
}

CampaignRun* Engine::FindRun(const std::string& campaign_id) {
  const auto found = runs_.find(campaign_id);
  return found == runs_.end() || found->second.results.state != CampaignState::kRunning
             ? nullptr
             : &found->second;
}

std::vector<CampaignRun*> Engine::RunsByAge() {
  std::vector<CampaignRun*> runs;
  for (auto& [campaign_id, run] : runs_) {
    if (run.results.state == CampaignState::kRunning) {
      runs.push_back(&run);
    }
  }
  std::sort(runs.begin(), runs.end(), [](const CampaignRun* a, const CampaignRun* b) {
    return std::tie(a->results.created_at_ms, a->results.campaign_id) <
           std::tie(b->results.created_at_ms, b->results.campaign_id);
  });
  return runs;
}

std::vector<Outgoing> Engine::TakeOutgoing() { return std::exchange(outgoing_, {}); }

std::vector<SessionId> Engine::TakeReplaced() { return std::exchange(replaced_, {}); }

void Engine::ShutDownWorkers(const std::string& reason) {
  for (const auto& [worker_id, worker] : workers_.workers()) {
    Send(worker, ShutdownMessage{.reason = reason});
  }
}

std::vector<WorkerView> Engine::Workers() const {
  std::vector<WorkerView> views;
  for (const auto& [worker_id, worker] : workers_.workers()) {
    views.push_back({.row = worker.row, .current = worker.current});
    WorkerRow& row = views.back().row;
    row.state = StateOf(worker);
    if (row.state != WorkerState::kBusy) {
      views.back().current.clear();
    }
    // The monotonic time of the last message as a time of day.
    row.last_seen_at_ms =
        clock_.NowMs() - static_cast<int64_t>((clock_.Monotonic() - worker.last_seen).count());
  }
  return views;
}

}  // namespace lastflop
