#include "db/event_rows.h"

#include <utility>

#include "common/status_macros.h"
#include "db/report_rows.h"

namespace lastflop {
namespace {

constexpr absl::string_view kInsertEvent = R"sql(
    INSERT INTO events (campaign_id, at_ms, kind, trial_id, intervention_id, state, message,
                        current, best, seconds_left, campaign_state, num_trials, num_done,
                        num_failed, num_running, num_pending, num_cancelled, num_lost_out)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)
    RETURNING sequence)sql";

constexpr absl::string_view kSelectEvents = R"sql(
    SELECT sequence, at_ms, kind, trial_id, intervention_id, events.state, message, current, best,
           seconds_left, campaign_state, num_trials, num_done, num_failed, num_running,
           num_pending, num_cancelled, num_lost_out, name, created_at_ms
      FROM events JOIN campaigns USING (campaign_id)
     WHERE campaign_id = ?1 AND sequence > ?2 ORDER BY sequence LIMIT ?3)sql";

absl::StatusOr<CampaignEvent> ReadEvent(const Statement& row, const std::string& campaign_id) {
  CampaignEvent event{.sequence = row.Integer(0),
                      .at_ms = row.Integer(1),
                      .kind = row.Text(2),
                      .trial_id = row.Text(3),
                      .intervention_id = row.Text(4),
                      .state = row.Text(5),
                      .message = row.Text(6),
                      .current = row.Text(7),
                      .best = row.Text(8),
                      .seconds_left = row.Real(9)};
  const auto count = [&row](int column) { return static_cast<int>(row.Integer(column)); };
  event.summary = {.campaign_id = campaign_id,
                   .name = row.Text(18),
                   .created_at_ms = row.Integer(19),
                   .num_trials = count(11),
                   .num_done = count(12),
                   .num_failed = count(13),
                   .num_running = count(14),
                   .num_pending = count(15),
                   .num_cancelled = count(16),
                   .num_lost_out = count(17)};
  LASTFLOP_ASSIGN_OR_RETURN(event.summary.state,
                            ReadWord<CampaignState>(row, 10, "events.campaign_state"));
  return event;
}

}  // namespace

absl::Status InsertEvent(Database& database, const std::string& campaign_id, int64_t at_ms,
                         CampaignEvent& event) {
  const CampaignSummary& summary = event.summary;
  LASTFLOP_ASSIGN_OR_RETURN(Statement statement, database.Prepare(kInsertEvent));
  statement.Bind(campaign_id)
      .Bind(at_ms)
      .Bind(event.kind)
      .Bind(event.trial_id)
      .Bind(event.intervention_id)
      .Bind(event.state)
      .Bind(event.message)
      .Bind(event.current)
      .Bind(event.best)
      .Bind(event.seconds_left)
      .Bind(ToWord(summary.state))
      .Bind(summary.num_trials)
      .Bind(summary.num_done)
      .Bind(summary.num_failed)
      .Bind(summary.num_running)
      .Bind(summary.num_pending)
      .Bind(summary.num_cancelled)
      .Bind(summary.num_lost_out);
  LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, statement.Step());
  if (!has_row) {
    return absl::InternalError("an event got no sequence number");
  }
  event.at_ms = at_ms;
  event.sequence = statement.Integer(0);
  return statement.Step().status();
}

absl::StatusOr<std::vector<CampaignEvent>> ReadEvents(Database& database,
                                                      const std::string& campaign_id,
                                                      int64_t after_sequence, int limit) {
  LASTFLOP_ASSIGN_OR_RETURN(Statement rows, database.Prepare(kSelectEvents));
  rows.Bind(campaign_id).Bind(after_sequence).Bind(limit);
  std::vector<CampaignEvent> events;
  while (true) {
    LASTFLOP_ASSIGN_OR_RETURN(const bool has_row, rows.Step());
    if (!has_row) {
      return events;
    }
    LASTFLOP_ASSIGN_OR_RETURN(CampaignEvent event, ReadEvent(rows, campaign_id));
    events.push_back(std::move(event));
  }
}

}  // namespace lastflop
