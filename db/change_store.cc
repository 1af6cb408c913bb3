#include "db/change_store.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/campaign_json.h"
#include "common/status_macros.h"
#include "db/event_rows.h"
#include "db/report_rows.h"
#include "db/trial_rows.h"

namespace lastflop {
namespace {

constexpr absl::string_view kInsertAttempt = R"sql(
    INSERT INTO attempts (attempt_id, campaign_id, trial_id, launch, launch_key, state, worker_ids,
                          deadline_ms, leased_at_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, 'leased', ?6, ?7, ?8))sql";

constexpr absl::string_view kStartAttempt = R"sql(
    UPDATE attempts SET state = 'running', started_at_ms = ?2
     WHERE attempt_id = ?1 AND state = 'leased')sql";

constexpr absl::string_view kEndAttempt = R"sql(
    UPDATE attempts SET state = ?2, authoritative = ?3, outcome = ?4, ended_at_ms = ?5
     WHERE attempt_id = ?1 AND state IN ('leased', 'running'))sql";

constexpr absl::string_view kUpdateTrial = R"sql(
    UPDATE trials SET state = ?3, reason = ?4, failure_kind = ?5, failure_message = ?6,
                      failure_rank = ?7, converged = ?8, settled = ?9, settled_reason = ?10
     WHERE campaign_id = ?1 AND trial_id = ?2)sql";

constexpr absl::string_view kUpdateCampaign = R"sql(
    UPDATE campaigns SET state = ?2, reason = ?3, machine_json = ?4, resumed_at_ms = ?5,
                         wall_from_ms = ?6, ended_at_ms = ?7
     WHERE campaign_id = ?1)sql";

absl::Status ExpectOneRow(const absl::StatusOr<int>& num_rows, absl::string_view what) {
  LASTFLOP_RETURN_IF_ERROR(num_rows.status());
  return *num_rows == 1 ? absl::OkStatus()
                        : absl::FailedPreconditionError(
                              absl::StrCat(what, " changed ", *num_rows, " rows instead of 1"));
}

absl::Status InsertAttempt(Database& database, const Change& change, const NewAttempt& attempt) {
  const AttemptResult& ids = attempt.record.result;
  return ExpectOneRow(
      database.Execute(kInsertAttempt, ids.attempt_id, change.campaign_id, ids.trial_id, ids.launch,
                       attempt.launch_key, nlohmann::json(attempt.record.worker_ids).dump(),
                       static_cast<int64_t>(attempt.deadline.count()), change.at_ms),
      absl::StrCat("lease of attempt ", ids.attempt_id));
}

absl::Status UpdateAttempt(Database& database, const Change& change, const AttemptUpdate& update) {
  if (update.state == AttemptState::kRunning) {
    return ExpectOneRow(database.Execute(kStartAttempt, update.attempt_id, change.at_ms),
                        absl::StrCat("start of attempt ", update.attempt_id));
  }
  return ExpectOneRow(database.Execute(kEndAttempt, update.attempt_id, ToWord(update.state),
                                       update.authoritative, update.outcome, change.at_ms),
                      absl::StrCat("end of attempt ", update.attempt_id));
}

absl::Status UpdateTrial(Database& database, const Change& change, const TrialRecord& trial) {
  absl::StatusOr<Statement> statement = database.Prepare(kUpdateTrial);
  LASTFLOP_RETURN_IF_ERROR(statement.status());
  statement->Bind(change.campaign_id)
      .Bind(trial.spec.trial_id)
      .Bind(ToWord(trial.state))
      .Bind(trial.reason);
  BindFailure(trial.failure, *statement);
  statement->Bind(trial.converged);
  if (trial.spec.settled.has_value()) {
    statement->Bind(ToWord(*trial.spec.settled));
  } else {
    statement->Bind(std::nullopt);
  }
  statement->Bind(trial.spec.settled_reason);
  return ExpectOneRow(statement->Run(), absl::StrCat("update of trial ", trial.spec.trial_id));
}

absl::Status UpdateCampaign(Database& database, const Change& change) {
  const CampaignUpdate& update = *change.campaign;
  std::optional<std::string> machine_json;
  if (update.machine.has_value()) {
    machine_json = ToJson(*update.machine);
  }
  std::optional<int64_t> ended_at_ms;
  if (update.ended_at_ms != 0) {
    ended_at_ms = update.ended_at_ms;
  }
  return ExpectOneRow(
      database.Execute(kUpdateCampaign, change.campaign_id, ToWord(update.state), update.reason,
                       machine_json, update.resumed_at_ms, update.wall_from_ms, ended_at_ms),
      absl::StrCat("update of campaign ", change.campaign_id));
}

}  // namespace

absl::Status ChangeStore::Apply(Change& change) {
  LASTFLOP_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  for (const NewAttempt& attempt : change.leased) {
    LASTFLOP_RETURN_IF_ERROR(InsertAttempt(database_, change, attempt));
  }
  for (const AttemptUpdate& update : change.attempts) {
    LASTFLOP_RETURN_IF_ERROR(UpdateAttempt(database_, change, update));
  }
  for (const AttemptResult& report : change.reports) {
    LASTFLOP_RETURN_IF_ERROR(InsertReport(database_, report, change.at_ms));
  }
  LASTFLOP_RETURN_IF_ERROR(
      InsertTrials(database_, change.campaign_id, change.first_new_trial, change.new_trials));
  for (const TrialRecord& trial : change.trials) {
    LASTFLOP_RETURN_IF_ERROR(UpdateTrial(database_, change, trial));
  }
  if (change.campaign.has_value()) {
    LASTFLOP_RETURN_IF_ERROR(UpdateCampaign(database_, change));
  }
  for (CampaignEvent& event : change.events) {
    LASTFLOP_RETURN_IF_ERROR(InsertEvent(database_, change.campaign_id, change.at_ms, event));
  }
  return transaction.Commit();
}

}  // namespace lastflop
