#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/campaign_results.h"
#include "common/campaign_summary.h"
#include "db/database.h"

// Reading what is stored: for `--db FILE`, for the coordinator's answers and after its restart.
// Works beside a coordinator that writes, and waits for nobody.
namespace lastflop {

// Opens a database to read it. NotFound: no such file. FailedPrecondition: another schema.
absl::StatusOr<Database> OpenForReading(const std::string& path);

// All campaigns, oldest first.
absl::StatusOr<std::vector<CampaignSummary>> ListCampaigns(Database& database);

// The id of the campaign that `reference` means: its id, a unique prefix of it, or a name that only
// one campaign has; "" means the only one there is. NotFound; InvalidArgument when it is ambiguous,
// with the candidates.
absl::StatusOr<std::string> ResolveCampaign(Database& database, absl::string_view reference);

// Everything stored of a campaign, from one snapshot. `machine` is the campaign's own when no
// worker has run it. NotFound.
absl::StatusOr<CampaignResults> ReadCampaign(Database& database, const std::string& campaign_id);

// One attempt without its samples. nullopt: there is none.
struct AttemptBrief {
  std::string campaign_id;
  std::string trial_id;
  int launch = 0;
  AttemptState state = AttemptState::kLeased;
  bool authoritative = false;
  bool has_report = false;
  bool was_in_time = false;  // The report came while the attempt was open.
  std::vector<std::string> worker_ids;
  std::string outcome;
};
absl::StatusOr<std::optional<AttemptBrief>> FindAttempt(Database& database,
                                                        const std::string& attempt_id);

// Where a campaign stands, and what the coordinator needs to go on with it.
struct RunState {
  CampaignState state = CampaignState::kRunning;
  bool has_machine = false;  // CampaignResults::machine is a detected one.
  int64_t resumed_at_ms = 0;
  int64_t wall_from_ms = 0;
  int64_t last_event_at_ms = 0;
  std::map<std::string, std::chrono::milliseconds> deadlines;  // Of open attempts, by id.
};
absl::StatusOr<RunState> ReadRunState(Database& database, const std::string& campaign_id);

}  // namespace lastflop
