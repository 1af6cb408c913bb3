#include "db/trial_rows.h"

#include <utility>
#include <vector>

#include "common/plan.h"
#include "common/status_macros.h"
#include "db/report_rows.h"

namespace lastflop {
namespace {

constexpr absl::string_view kInsertTrial = R"sql(
    INSERT INTO trials (campaign_id, trial_id, trial_index, intervention_id, choice, point_index,
                        baseline_text, variant_text, settled, settled_reason, state, reason,
                        failure_kind, failure_message, failure_rank, round, role)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17))sql";

constexpr absl::string_view kSelectTrials = R"sql(
    SELECT trial_id, intervention_id, choice, point_index, baseline_text, variant_text, settled,
           settled_reason, state, reason, failure_kind, failure_message, failure_rank, converged,
           (SELECT count(*) FROM attempts
             WHERE attempts.campaign_id = trials.campaign_id
               AND attempts.trial_id = trials.trial_id),
           round, role
      FROM trials WHERE campaign_id = ?1 ORDER BY trial_index)sql";

absl::StatusOr<TrialRecord> ReadTrial(const Statement& row) {
  TrialRecord trial;
  trial.spec.trial_id = row.Text(0);
  trial.spec.intervention_id = row.Text(1);
  trial.spec.choice = row.Text(2);
  trial.spec.point_index = static_cast<int>(row.Integer(3));
  LASTFLOP_ASSIGN_OR_RETURN(trial.spec.baseline, ParseCanonicalText(row.Text(4)));
  LASTFLOP_ASSIGN_OR_RETURN(trial.spec.variant, ParseCanonicalText(row.Text(5)));
  if (!row.IsNull(6)) {
    LASTFLOP_ASSIGN_OR_RETURN(trial.spec.settled, ReadWord<Standing>(row, 6, "trials.settled"));
  }
  trial.spec.settled_reason = row.Text(7);
  LASTFLOP_ASSIGN_OR_RETURN(trial.state, ReadWord<TrialState>(row, 8, "trials.state"));
  trial.reason = row.Text(9);
  LASTFLOP_ASSIGN_OR_RETURN(trial.failure, ReadFailure(row, 10));
  trial.converged = row.Boolean(13);
  trial.num_attempts = static_cast<int>(row.Integer(14));
  trial.spec.round = static_cast<int>(row.Integer(15));
  LASTFLOP_ASSIGN_OR_RETURN(trial.spec.role, ReadWord<TrialRole>(row, 16, "trials.role"));
  return trial;
}

}  // namespace

absl::Status InsertTrials(Database& database, const std::string& campaign_id, int64_t first_index,
                          std::span<const TrialRecord> trials) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement statement, database.Prepare(kInsertTrial));
  int64_t trial_index = first_index;
  for (const TrialRecord& trial : trials) {
    const TrialSpec& spec = trial.spec;
    statement.Bind(campaign_id)
        .Bind(spec.trial_id)
        .Bind(trial_index++)
        .Bind(spec.intervention_id)
        .Bind(spec.choice)
        .Bind(spec.point_index)
        .Bind(CanonicalText(spec.baseline))
        .Bind(CanonicalText(spec.variant));
    if (spec.settled.has_value()) {
      statement.Bind(ToWord(*spec.settled));
    } else {
      statement.Bind(std::nullopt);
    }
    statement.Bind(spec.settled_reason).Bind(ToWord(trial.state)).Bind(trial.reason);
    BindFailure(trial.failure, statement);
    statement.Bind(spec.round).Bind(ToWord(spec.role));
    LASTFLOP_RETURN_IF_ERROR(statement.Run().status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<TrialRecord>> ReadTrials(Database& database,
                                                    const std::string& campaign_id) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectTrials));
  rows.Bind(campaign_id);
  std::vector<TrialRecord> trials;
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return trials;
    }
    LASTFLOP_ASSIGN_OR_RETURN(TrialRecord trial, ReadTrial(rows));
    trials.push_back(std::move(trial));
  }
}

}  // namespace lastflop
