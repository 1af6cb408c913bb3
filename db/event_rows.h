#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "db/change.h"
#include "db/database.h"

namespace lastflop {

// Writes an event and puts its time and sequence number into it. No transaction of its own.
absl::Status InsertEvent(Database& database, const std::string& campaign_id, int64_t at_ms,
                         CampaignEvent& event);

// Events of a campaign after `after_sequence`, oldest first, at most `limit`.
absl::StatusOr<std::vector<CampaignEvent>> ReadEvents(Database& database,
                                                      const std::string& campaign_id,
                                                      int64_t after_sequence, int limit);

}  // namespace lastflop
