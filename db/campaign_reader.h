#pragma once

#include <chrono>
#include <cstdint>
#include <map>
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

// What only the coordinator needs to go on after a restart.
struct RunState {
  bool has_machine = false;  // CampaignResults::machine is a detected one.
  int64_t resumed_at_ms = 0;
  int64_t wall_from_ms = 0;
  int64_t last_event_at_ms = 0;
  std::map<std::string, std::chrono::milliseconds> deadlines;  // Of open attempts, by id.
};
absl::StatusOr<RunState> ReadRunState(Database& database, const std::string& campaign_id);

}  // namespace lastflop
