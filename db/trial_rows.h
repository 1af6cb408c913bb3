#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/campaign_results.h"
#include "db/database.h"

// Rows of the table `trials`, within the caller's transaction.
namespace lastflop {

// Adds trials that are not there yet; the first one gets `first_index` of the campaign's order.
absl::Status InsertTrials(Database& database, const std::string& campaign_id, int64_t first_index,
                          std::span<const TrialRecord> trials);

// All trials of a campaign, in their order.
absl::StatusOr<std::vector<TrialRecord>> ReadTrials(Database& database,
                                                    const std::string& campaign_id);

}  // namespace lastflop
