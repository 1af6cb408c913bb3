#include "db/campaign_store.h"

#include "common/campaign_json.h"
#include "common/status_macros.h"
#include "db/event_rows.h"
#include "db/trial_rows.h"

namespace lastflop {
namespace {

constexpr absl::string_view kInsertCampaign = R"sql(
    INSERT INTO campaigns (campaign_id, submission_id, name, state, campaign_json, source_yaml,
                           source_name, created_at_ms, resumed_at_ms, wall_from_ms)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?8))sql";

constexpr absl::string_view kFindSubmission =
    "SELECT campaign_id FROM campaigns WHERE submission_id = ?1";

}  // namespace

absl::Status CampaignStore::Insert(const CampaignResults& results, const std::string& submission_id,
                                   CampaignEvent& event) {
  LASTFLOP_ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  LASTFLOP_RETURN_IF_ERROR(database_
                               .Execute(kInsertCampaign, results.campaign_id, submission_id,
                                        results.campaign.name, ToWord(results.state),
                                        ToJson(results.campaign), results.source_yaml,
                                        results.source_name, results.created_at_ms)
                               .status());
  LASTFLOP_RETURN_IF_ERROR(InsertTrials(database_, results.campaign_id, 0, results.trials));
  LASTFLOP_RETURN_IF_ERROR(
      InsertEvent(database_, results.campaign_id, results.created_at_ms, event));
  return transaction.Commit();
}

absl::StatusOr<std::optional<std::string>> CampaignStore::FindSubmission(
    const std::string& submission_id) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement row, database_.Prepare(kFindSubmission));
  row.Bind(submission_id);
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, row.Step());
  if (!has_row) {
    return std::nullopt;
  }
  return row.Text(0);
}

}  // namespace lastflop
