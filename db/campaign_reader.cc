#include "db/campaign_reader.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/campaign_json.h"
#include "common/plan.h"
#include "common/status_macros.h"
#include "db/report_rows.h"
#include "db/schema.h"
#include "db/trial_rows.h"

namespace lastflop {
namespace {

constexpr absl::string_view kSelectSummaries = R"sql(
    SELECT campaign_id, name, campaigns.state, created_at_ms, trials.state, count(trials.trial_id),
           trials.settled IS NOT NULL OR trials.failure_kind IS NOT NULL AS has_finding
      FROM campaigns LEFT JOIN trials USING (campaign_id)
     GROUP BY campaign_id, trials.state, has_finding
     ORDER BY created_at_ms, campaigns.rowid)sql";

constexpr absl::string_view kSelectCampaign = R"sql(
    SELECT state, reason, campaign_json, source_yaml, source_name, machine_json, created_at_ms,
           ended_at_ms
      FROM campaigns WHERE campaign_id = ?1)sql";

constexpr absl::string_view kSelectAttempts = R"sql(
    SELECT attempt_id, trial_id, launch, state, authoritative, worker_ids, leased_at_ms,
           started_at_ms, ended_at_ms, outcome
      FROM attempts WHERE campaign_id = ?1 ORDER BY attempt_index)sql";

constexpr absl::string_view kSelectAttempt = R"sql(
    SELECT campaign_id, trial_id, launch, state, authoritative, worker_ids, outcome,
           reported_at_ms IS NOT NULL,
           ifnull(reported_at_ms <= ended_at_ms AND state IN ('done', 'failed'), 0)
      FROM attempts LEFT JOIN results USING (attempt_id) WHERE attempt_id = ?1)sql";

constexpr absl::string_view kSelectRunState = R"sql(
    SELECT machine_json IS NOT NULL, resumed_at_ms, wall_from_ms,
           (SELECT max(at_ms) FROM events WHERE events.campaign_id = campaigns.campaign_id), state
      FROM campaigns WHERE campaign_id = ?1)sql";

constexpr absl::string_view kSelectDeadlines = R"sql(
    SELECT attempt_id, deadline_ms FROM attempts
     WHERE campaign_id = ?1 AND state IN ('leased', 'running'))sql";

absl::Status ReadHeader(Database& database, CampaignResults& results) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement row, database.Prepare(kSelectCampaign));
  row.Bind(results.campaign_id);
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, row.Step());
  if (!has_row) {
    return absl::NotFoundError(absl::StrCat("there is no campaign ", results.campaign_id));
  }
  LASTFLOP_ASSIGN_OR_RETURN(results.state, ReadWord<CampaignState>(row, 0, "campaigns.state"));
  results.reason = row.Text(1);
  LASTFLOP_ASSIGN_OR_RETURN(results.campaign, CampaignFromJson(row.Text(2)));
  results.source_yaml = row.Text(3);
  results.source_name = row.Text(4);
  if (row.IsNull(5)) {
    results.machine = results.campaign.machine;
  } else {
    LASTFLOP_ASSIGN_OR_RETURN(results.machine, MachineFromJson(row.Text(5)));
  }
  results.created_at_ms = row.Integer(6);
  results.ended_at_ms = row.Integer(7);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReadWorkerIds(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return absl::InternalError(absl::StrCat("attempts.worker_ids is damaged: ", text));
  }
  std::vector<std::string> worker_ids;
  for (const nlohmann::json& worker_id : json) {
    worker_ids.push_back(worker_id.is_string() ? worker_id.get<std::string>() : worker_id.dump());
  }
  return worker_ids;
}

absl::StatusOr<AttemptRecord> ReadAttempt(Database& database, const Statement& row) {
  AttemptRecord attempt;
  attempt.result.attempt_id = row.Text(0);
  attempt.result.trial_id = row.Text(1);
  attempt.result.launch = static_cast<int>(row.Integer(2));
  LASTFLOP_ASSIGN_OR_RETURN(attempt.state, ReadWord<AttemptState>(row, 3, "attempts.state"));
  attempt.authoritative = row.Boolean(4);
  LASTFLOP_ASSIGN_OR_RETURN(attempt.worker_ids, ReadWorkerIds(row.Text(5)));
  attempt.leased_at_ms = row.Integer(6);
  attempt.started_at_ms = row.Integer(7);
  attempt.ended_at_ms = row.Integer(8);
  attempt.outcome = row.Text(9);
  LASTFLOP_ASSIGN_OR_RETURN(attempt.has_report, ReadReport(database, attempt.result));
  return attempt;
}

absl::Status ReadAttempts(Database& database, CampaignResults& results) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectAttempts));
  rows.Bind(results.campaign_id);
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return absl::OkStatus();
    }
    LASTFLOP_ASSIGN_OR_RETURN(AttemptRecord attempt, ReadAttempt(database, rows));
    results.attempts.push_back(std::move(attempt));
  }
}

std::string Candidates(const std::vector<CampaignSummary>& campaigns) {
  return absl::StrJoin(campaigns, ", ", [](std::string* out, const CampaignSummary& campaign) {
    absl::StrAppend(out, campaign.campaign_id, " (", campaign.name, ")");
  });
}

}  // namespace

absl::StatusOr<Database> OpenForReading(const std::string& path) {
  LASTFLOP_ASSIGN_OR_RETURN(Database database, Database::Open(path, Database::Mode::kReadOnly));
  LASTFLOP_RETURN_IF_ERROR(CheckSchema(database));
  return database;
}

absl::StatusOr<std::vector<CampaignSummary>> ListCampaigns(Database& database) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectSummaries));
  std::vector<CampaignSummary> campaigns;
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return campaigns;
    }
    const std::string campaign_id = rows.Text(0);
    if (campaigns.empty() || campaigns.back().campaign_id != campaign_id) {
      LASTFLOP_ASSIGN_OR_RETURN(const CampaignState state,
                                ReadWord<CampaignState>(rows, 2, "campaigns.state"));
      campaigns.push_back({.campaign_id = campaign_id,
                           .name = rows.Text(1),
                           .state = state,
                           .created_at_ms = rows.Integer(3)});
    }
    if (!rows.IsNull(4)) {
      LASTFLOP_ASSIGN_OR_RETURN(const TrialState state,
                                ReadWord<TrialState>(rows, 4, "trials.state"));
      CountTrial(state, rows.Boolean(6), static_cast<int>(rows.Integer(5)), campaigns.back());
    }
  }
}

absl::StatusOr<std::string> ResolveCampaign(Database& database, absl::string_view reference) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::vector<CampaignSummary> campaigns, ListCampaigns(database));
  std::vector<CampaignSummary> by_prefix;
  std::vector<CampaignSummary> by_name;
  for (const CampaignSummary& campaign : campaigns) {
    if (campaign.campaign_id == reference) {
      return campaign.campaign_id;
    }
    if (absl::StartsWith(campaign.campaign_id, reference)) {
      by_prefix.push_back(campaign);
    }
    if (campaign.name == reference) {
      by_name.push_back(campaign);
    }
  }
  for (const std::vector<CampaignSummary>* found : {&by_name, &by_prefix}) {
    if (found->size() == 1) {
      return found->front().campaign_id;
    }
    if (found->size() > 1) {
      return absl::InvalidArgumentError(
          reference.empty()
              ? absl::StrCat("there are several campaigns, name one: ", Candidates(*found))
              : absl::StrCat("campaign \"", reference, "\" may be ", Candidates(*found)));
    }
  }
  return absl::NotFoundError(absl::StrCat("there is no campaign \"", reference, "\""));
}

absl::StatusOr<CampaignResults> ReadCampaign(Database& database, const std::string& campaign_id) {
  LASTFLOP_ASSIGN_OR_RETURN(const Transaction snapshot, Transaction::BeginRead(database));
  CampaignResults results;
  results.campaign_id = campaign_id;
  LASTFLOP_RETURN_IF_ERROR(ReadHeader(database, results));
  LASTFLOP_ASSIGN_OR_RETURN(results.trials, ReadTrials(database, results.campaign_id));
  LASTFLOP_RETURN_IF_ERROR(ReadAttempts(database, results));
  return results;
}

absl::StatusOr<std::optional<AttemptBrief>> FindAttempt(Database& database,
                                                        const std::string& attempt_id) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement row, database.Prepare(kSelectAttempt));
  row.Bind(attempt_id);
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, row.Step());
  if (!has_row) {
    return std::nullopt;
  }
  AttemptBrief attempt{.campaign_id = row.Text(0),
                       .trial_id = row.Text(1),
                       .launch = static_cast<int>(row.Integer(2)),
                       .authoritative = row.Boolean(4),
                       .has_report = row.Boolean(7),
                       .was_in_time = row.Boolean(8),
                       .outcome = row.Text(6)};
  LASTFLOP_ASSIGN_OR_RETURN(attempt.state, ReadWord<AttemptState>(row, 3, "attempts.state"));
  LASTFLOP_ASSIGN_OR_RETURN(attempt.worker_ids, ReadWorkerIds(row.Text(5)));
  return attempt;
}

absl::StatusOr<RunState> ReadRunState(Database& database, const std::string& campaign_id) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement row, database.Prepare(kSelectRunState));
  row.Bind(campaign_id);
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_campaign, row.Step());
  if (!has_campaign) {
    return absl::NotFoundError(absl::StrCat("there is no campaign ", campaign_id));
  }
  RunState state{.has_machine = row.Boolean(0),
                 .resumed_at_ms = row.Integer(1),
                 .wall_from_ms = row.Integer(2),
                 .last_event_at_ms = row.Integer(3)};
  LASTFLOP_ASSIGN_OR_RETURN(state.state, ReadWord<CampaignState>(row, 4, "campaigns.state"));
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectDeadlines));
  rows.Bind(campaign_id);
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return state;
    }
    state.deadlines[rows.Text(0)] = std::chrono::milliseconds(rows.Integer(1));
  }
}

}  // namespace lastflop
