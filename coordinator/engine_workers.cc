// What workers say to the engine.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/log.h"
#include "common/quarantine_note.h"
#include "common/status_macros.h"
#include "coordinator/changes.h"
#include "coordinator/engine.h"
#include "coordinator/trial_rules.h"

namespace lastflop {
namespace {

// A failure after which the children of the gang are in an unknown state.
bool EndsChildren(FailureKind kind) { return !IsFinding(kind); }

bool IsSuspicious(FailureKind kind, bool is_baseline) {
  return !IsFinding(kind) || (is_baseline && kind == FailureKind::kWrongResult);
}

}  // namespace

absl::Status Engine::Hello(SessionId session, const WorkerHello& hello) {
  SessionId replaced = 0;
  const absl::StatusOr<std::string> worker_id =
      workers_.Accept(hello, session, clock_.Monotonic(), replaced);
  if (!worker_id.ok()) {
    LASTFLOP_RETURN_IF_ERROR(Say(
        LogSeverity::kWarning, "worker_refused",
        {{"worker_id", hello.worker_id}, {"reason", std::string(worker_id.status().message())}}));
    outgoing_.push_back(
        {.session = session, .message = RefusedMessage{std::string(worker_id.status().message())}});
    return absl::OkStatus();
  }
  if (replaced != 0 && replaced != session) {
    replaced_.push_back(replaced);
  }
  WorkerEntry& worker = *workers_.Find(*worker_id);
  workers_changed_at_ = clock_.Monotonic();
  LASTFLOP_RETURN_IF_ERROR(Say(LogSeverity::kInfo, "worker_connected",
                               {{"worker_id", *worker_id},
                                {"device", hello.device},
                                {"host", hello.host_name},
                                {"pid", absl::StrCat(hello.pid)}}));
  Send(worker,
       WelcomeMessage{
           .worker_id = *worker_id, .heartbeat = options_.heartbeat, .timeout = options_.timeout});
  LASTFLOP_RETURN_IF_ERROR(AdoptHeld(worker, hello.held_attempt_ids));
  return SaveWorker(worker);
}

absl::Status Engine::AdoptHeld(WorkerEntry& worker, const std::vector<std::string>& held) {
  const std::string& worker_id = worker.row.worker_id;
  std::vector<std::string> lost;
  for (auto& [attempt_id, open] : open_) {
    if (std::count(open.worker_ids.begin(), open.worker_ids.end(), worker_id) == 0) {
      continue;
    }
    if (std::count(held.begin(), held.end(), attempt_id) == 0) {
      lost.push_back(attempt_id);
      continue;
    }
    open.missing.erase(worker_id);
    open.started.insert(worker_id);
    worker.attempts.insert(attempt_id);
    worker.holds_host = true;  // What exactly it runs is known to the coordinator that leased it.
  }
  for (const std::string& attempt_id : lost) {
    worker.attempts.erase(attempt_id);
    LASTFLOP_RETURN_IF_ERROR(Lose(attempt_id, AttemptState::kLost,
                                  absl::StrCat("worker ", worker_id, " came back without it")));
  }
  return Heartbeat(worker.session, held);
}

absl::Status Engine::Heartbeat(SessionId session, const std::vector<std::string>& attempt_ids,
                               const std::set<std::string>& held_up) {
  WorkerEntry* worker = workers_.FindSession(session);
  if (worker == nullptr) {
    return absl::OkStatus();
  }
  worker->last_seen = clock_.Monotonic();
  for (const std::string& attempt_id : worker->attempts) {
    if (const auto open = open_.find(attempt_id); open == open_.end()) {
      continue;
    } else if (held_up.contains(attempt_id)) {
      open->second.held_up.insert(worker->row.worker_id);
    } else {
      open->second.held_up.erase(worker->row.worker_id);
    }
  }
  std::set<std::string> draining;
  for (const std::string& attempt_id : attempt_ids) {
    if (worker->attempts.count(attempt_id) > 0) {
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(const std::optional<AttemptBrief> attempt,
                              FindAttempt(database_, attempt_id));
    if (!attempt.has_value() || attempt->has_report) {
      continue;  // Its acknowledgement is on its way.
    }
    draining.insert(attempt_id);
    if (FindRun(attempt->campaign_id) == nullptr) {
      Send(*worker, CancelMessage{attempt_id, "the campaign has ended"});
    }
  }
  worker->draining = std::move(draining);
  // The lease comes first in its stream, so this ends what it starts.
  for (const std::string& attempt_id : std::exchange(worker->unread, {})) {
    Send(*worker, CancelMessage{attempt_id, "the attempt was lost before it was started"});
  }
  if (worker->is_lost) {
    worker->is_lost = false;
    workers_changed_at_ = clock_.Monotonic();
    LASTFLOP_RETURN_IF_ERROR(
        Say(LogSeverity::kInfo, "worker_rejoined", {{"worker_id", worker->row.worker_id}}));
    return SaveWorker(*worker);
  }
  return absl::OkStatus();
}

absl::Status Engine::AttemptStarted(SessionId session, const std::string& attempt_id) {
  const WorkerEntry* worker = workers_.FindSession(session);
  const auto open = open_.find(attempt_id);
  if (worker == nullptr || open == open_.end() || worker->attempts.count(attempt_id) == 0) {
    return absl::OkStatus();
  }
  open->second.started.insert(worker->row.worker_id);
  CampaignRun& run = runs_.at(open->second.campaign_id);
  const AttemptRecord& attempt = run.results.attempts[run.attempt_index.at(attempt_id)];
  if (attempt.state != AttemptState::kLeased) {
    return absl::OkStatus();  // Another member was first.
  }
  open->second.expires = clock_.Monotonic() + open->second.deadline + options_.deadline_slack;
  Change change{.campaign_id = run.results.campaign_id, .at_ms = clock_.NowMs()};
  change.attempts.push_back({.attempt_id = attempt_id, .state = AttemptState::kRunning});
  return Commit(run, std::move(change));
}

absl::Status Engine::AttemptRefused(SessionId session, const std::string& attempt_id,
                                    const std::string& reason, AttemptState state) {
  WorkerEntry* worker = workers_.FindSession(session);
  if (worker == nullptr || worker->attempts.erase(attempt_id) == 0) {
    return absl::OkStatus();  // Not, or no longer, its attempt.
  }
  return Lose(attempt_id, state,
              absl::StrCat(state == AttemptState::kRefused ? "refused by worker " : "worker ",
                           worker->row.worker_id, ": ", reason));
}

absl::Status Engine::AttemptReport(SessionId session, AttemptResult result) {
  WorkerEntry* worker = workers_.FindSession(session);
  if (worker == nullptr) {
    return absl::OkStatus();
  }
  worker->last_seen = clock_.Monotonic();
  const std::string attempt_id = result.attempt_id;
  LASTFLOP_RETURN_IF_ERROR(HandleReport(*worker, std::move(result)));
  // Every answer is read from the row, so that a repeated report gets the first one's.
  LASTFLOP_ASSIGN_OR_RETURN(const std::optional<AttemptBrief> attempt,
                            FindAttempt(database_, attempt_id));
  AckMessage ack{.attempt_id = attempt_id, .message = "there is no such attempt"};
  if (attempt.has_value()) {
    ack.authoritative = attempt->was_in_time;
    ack.message = ack.authoritative ? ""
                                    : absl::StrCat("the attempt is ", ToWord(attempt->state), ": ",
                                                   attempt->outcome);
  }
  worker->attempts.erase(attempt_id);
  worker->draining.erase(attempt_id);
  Send(*worker, std::move(ack));
  return absl::OkStatus();
}

absl::Status Engine::HandleReport(WorkerEntry& worker, AttemptResult result) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::optional<AttemptBrief> attempt,
                            FindAttempt(database_, result.attempt_id));
  if (!attempt.has_value() || attempt->has_report) {
    return absl::OkStatus();
  }
  const std::vector<std::string>& members = attempt->worker_ids;
  if (std::count(members.begin(), members.end(), worker.row.worker_id) == 0) {
    LASTFLOP_RETURN_IF_ERROR(
        Say(LogSeverity::kWarning, "report_of_a_stranger",
            {{"worker_id", worker.row.worker_id}, {"attempt_id", result.attempt_id}}));
    return absl::OkStatus();
  }
  // The lease says what it was an attempt at.
  result.trial_id = attempt->trial_id;
  result.launch = attempt->launch;
  for (PairSample& sample : result.samples) {
    sample.pair.launch = attempt->launch;
  }
  if (open_.count(result.attempt_id) == 0) {
    Change late{.campaign_id = attempt->campaign_id, .at_ms = clock_.NowMs()};
    late.reports.push_back(std::move(result));
    if (CampaignRun* run = FindRun(attempt->campaign_id); run != nullptr) {
      return Commit(*run, std::move(late));
    }
    return changes_.Apply(late);
  }

  CampaignRun& run = runs_.at(attempt->campaign_id);
  const std::string attempt_id = result.attempt_id;
  if (const std::string absence = AbsenceBehind(result); !absence.empty()) {
    return Lose(attempt_id, AttemptState::kLost, absence, result);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::string quarantined, JudgeMembers(run, result));
  if (!quarantined.empty()) {
    return Lose(attempt_id, AttemptState::kLost, quarantined, result);
  }
  const Change change = DecideReport(run, result, clock_.NowMs());
  const std::optional<Failure> failure = change.reports.front().failure;
  LASTFLOP_RETURN_IF_ERROR(Commit(run, change));
  if (failure.has_value() && EndsChildren(failure->kind)) {
    ++generations_[open_.at(attempt_id).gang_key];
    // The other members may be where nothing tells them, as before they have met.
    worker.attempts.erase(attempt_id);
    Release(attempt_id, failure->message);
  } else {
    Release(attempt_id, "");
  }
  return absl::OkStatus();
}

std::string Engine::AbsenceBehind(const AttemptResult& result) {
  if (!result.failure.has_value()) {
    return "";
  }
  const OpenAttempt& open = open_.at(result.attempt_id);
  for (const std::string& member : open.worker_ids) {
    const WorkerEntry* entry = workers_.Find(member);
    if (result.failure->kind == FailureKind::kRankLost &&
        (entry == nullptr || StateOf(*entry) == WorkerState::kLost)) {
      return absl::StrCat("worker ", member, " is gone");
    }
    // Its gang waited for it and gave up: a fault of the trial needs all of them.
    if (result.failure->kind == FailureKind::kTimeout && open.worker_ids.size() > 1 &&
        open.started.count(member) == 0) {
      return absl::StrCat("worker ", member, " never started it: ", result.failure->message);
    }
  }
  return "";
}

absl::StatusOr<std::string> Engine::JudgeMembers(const CampaignRun& run,
                                                 const AttemptResult& result) {
  const std::vector<std::string>& members = open_.at(result.attempt_id).worker_ids;
  std::optional<Failure> failure = result.failure;
  if (!failure.has_value()) {
    failure = FaultOf(result);
  }
  const size_t trial_index = run.trial_index.at(result.trial_id);
  const TrialSpec& trial = run.results.trials[trial_index].spec;
  const bool is_baseline = trial.intervention_id == kBaselineId;
  const bool is_failure = failure.has_value() && IsSuspicious(failure->kind, is_baseline);
  const std::string trial_key = absl::StrCat(run.results.campaign_id, "/", trial.trial_id);
  if (!is_failure) {
    for (auto& [worker_id, worker] : workers_.workers()) {
      BookSuccessElsewhere(trial_key, worker);
    }
  }
  for (size_t rank = 0; rank < members.size(); ++rank) {
    WorkerEntry* worker = workers_.Find(members[rank]);
    if (worker == nullptr) {
      continue;
    }
    worker->row.num_done += is_failure ? 0 : 1;
    if (!is_failure) {
      BookSuccess(*worker);
      LASTFLOP_RETURN_IF_ERROR(SaveWorker(*worker));
      continue;
    }
    if (members.size() > 1 && failure->rank != static_cast<int>(rank)) {
      continue;  // Another rank's fault, or nobody knows whose.
    }
    ++worker->row.num_failed;
    const std::vector<SchedulerWorker> all = workers_.ForScheduler();
    const bool has_others = all.size() > members.size();
    const WorkerVerdict verdict =
        BookFailure({.trial_key = trial_key,
                     .intervention = absl::StrCat(run.results.campaign_id, "/",
                                                  trial.intervention_id, "/", trial.choice),
                     .is_baseline = is_baseline,
                     .is_known_good = HasSuccess(run, trial_index)},
                    has_others, options_.failures_in_row, *worker);
    if (verdict.is_quarantined) {
      LASTFLOP_RETURN_IF_ERROR(Quarantine(*worker, verdict.reason));
      return QuarantineNote(members[rank], verdict.reason, failure->message);
    }
    LASTFLOP_RETURN_IF_ERROR(SaveWorker(*worker));
  }
  return "";
}

absl::Status Engine::Quarantine(WorkerEntry& worker, const std::string& reason) {
  worker.is_quarantined = true;
  worker.row.reason = reason;
  workers_changed_at_ = clock_.Monotonic();
  LASTFLOP_RETURN_IF_ERROR(Say(LogSeverity::kWarning, "worker_quarantined",
                               {{"worker_id", worker.row.worker_id}, {"reason", reason}}));
  return SaveWorker(worker);
}

void Engine::AttemptProgress(SessionId session, const std::string& attempt_id,
                             const std::string& stage, int64_t pairs, double speedup) {
  WorkerEntry* worker = workers_.FindSession(session);
  const auto open = open_.find(attempt_id);
  if (worker == nullptr || open == open_.end()) {
    return;
  }
  const CampaignRun& run = runs_.at(open->second.campaign_id);
  const AttemptResult& ids = run.results.attempts[run.attempt_index.at(attempt_id)].result;
  const TrialSpec& trial = run.results.trials[run.trial_index.at(ids.trial_id)].spec;
  CampaignEvent event{.at_ms = clock_.NowMs(),
                      .kind = "progress",
                      .trial_id = trial.trial_id,
                      .intervention_id = trial.intervention_id,
                      .state = stage,
                      .message = absl::StrCat(
                          stage, pairs > 0 ? absl::StrCat(", ", pairs, " pairs") : std::string(),
                          speedup > 0 ? absl::StrFormat(", %.3fx", speedup) : std::string()),
                      .current = absl::StrCat(TrialLabel(run, trial), ", launch ", ids.launch + 1,
                                              " of ", run.results.campaign.measure.launches)};
  event.summary = Summarize(run.results);
  FillProgress(run, event);
  worker->current = absl::StrCat(event.current, ": ", event.message);
  events_.PublishProgress(run.results.campaign_id, std::move(event));
}

absl::Status Engine::WorkerLogs(SessionId session, std::vector<LogLine> lines) {
  const WorkerEntry* worker = workers_.FindSession(session);
  if (worker == nullptr) {
    return absl::OkStatus();
  }
  for (LogLine& line : lines) {
    line.source = worker->row.worker_id;
  }
  LASTFLOP_RETURN_IF_ERROR(worker_store_.AppendLogs(lines));
  events_.Notify();
  return absl::OkStatus();
}

absl::Status Engine::Say(LogSeverity severity, absl::string_view event, LogFields fields) {
  Log(severity, event, fields);
  const absl::string_view word = severity == LogSeverity::kInfo      ? "info"
                                 : severity == LogSeverity::kWarning ? "warning"
                                                                     : "error";
  LASTFLOP_RETURN_IF_ERROR(worker_store_.AppendLogs({{.at_ms = clock_.NowMs(),
                                                      .source = kCoordinatorSource,
                                                      .severity = std::string(word),
                                                      .line = LogText(event, fields)}}));
  events_.Notify();
  return absl::OkStatus();
}

absl::Status Engine::Disconnected(SessionId session) {
  WorkerEntry* worker = workers_.FindSession(session);
  if (worker == nullptr) {
    return absl::OkStatus();  // It was refused, or another stream took its place.
  }
  worker->session = 0;
  workers_changed_at_ = clock_.Monotonic();
  LASTFLOP_RETURN_IF_ERROR(
      Say(LogSeverity::kWarning, "worker_disconnected", {{"worker_id", worker->row.worker_id}}));
  // A process that is gone will not come back with its attempts; a broken stream may.
  if (worker->row.host_id == options_.host_id && !options_.is_process_alive(worker->row.pid)) {
    worker->is_lost = true;
    LASTFLOP_RETURN_IF_ERROR(
        LoseAttemptsOf(*worker, absl::StrCat("worker ", worker->row.worker_id, " ended")));
  }
  return SaveWorker(*worker);
}

absl::Status Engine::LoseAttemptsOf(WorkerEntry& worker, const std::string& reason) {
  const std::set<std::string> attempts = worker.attempts;
  for (const std::string& attempt_id : attempts) {
    LASTFLOP_RETURN_IF_ERROR(Lose(attempt_id, AttemptState::kLost, reason));
  }
  return absl::OkStatus();
}

absl::Status Engine::Lose(const std::string& attempt_id, AttemptState state,
                          const std::string& reason, const std::optional<AttemptResult>& report) {
  const auto open = open_.find(attempt_id);
  if (open == open_.end()) {
    return absl::OkStatus();
  }
  CampaignRun& run = runs_.at(open->second.campaign_id);
  LASTFLOP_RETURN_IF_ERROR(
      Say(LogSeverity::kWarning, "attempt_lost", {{"attempt_id", attempt_id}, {"reason", reason}}));
  LASTFLOP_RETURN_IF_ERROR(
      Commit(run, DecideLoss(run, attempt_id, state, reason, options_.max_lost_attempts, report,
                             clock_.NowMs())));
  ++generations_[open->second.gang_key];
  Release(attempt_id, reason);
  return absl::OkStatus();
}

void Engine::Release(const std::string& attempt_id, absl::string_view reason) {
  const auto open = open_.find(attempt_id);
  if (open == open_.end()) {
    return;
  }
  for (const std::string& member : open->second.worker_ids) {
    WorkerEntry* worker = workers_.Find(member);
    if (worker == nullptr || worker->attempts.erase(attempt_id) == 0) {
      continue;
    }
    if (worker->attempts.empty()) {
      worker->current.clear();
    }
    if (reason.empty()) {
      continue;
    }
    // It is not idle before it has dropped the attempt. One that is silent may have a result
    // already and is not told to drop what it has started: that is kept, without authority.
    worker->draining.insert(attempt_id);
    if (!worker->is_lost) {
      Send(*worker, CancelMessage{attempt_id, std::string(reason)});
    } else if (open->second.started.count(member) == 0) {
      worker->unread.insert(attempt_id);
    }
  }
  open_.erase(open);
}

absl::Status Engine::SaveWorker(const WorkerEntry& worker) {
  WorkerRow row = worker.row;
  row.state = StateOf(worker);
  row.last_seen_at_ms = clock_.NowMs();
  return worker_store_.Save(row);
}

}  // namespace lastflop
