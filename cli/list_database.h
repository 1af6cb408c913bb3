#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign_summary.h"

namespace lastflop {

// The campaigns of a database file, oldest first. InvalidArgument: `db` is "".
absl::StatusOr<std::vector<CampaignSummary>> ListDatabase(const std::string& db);

}  // namespace lastflop
