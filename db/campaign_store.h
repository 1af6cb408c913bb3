#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/campaign_results.h"
#include "db/change.h"
#include "db/database.h"

namespace lastflop {

// New campaigns. Not thread-safe; errors as Database.
class CampaignStore {
 public:
  explicit CampaignStore(Database& database) : database_(database) {}

  // Stores a campaign with its trials, and `event` as its first, in one transaction. `results` has
  // everything but attempts. AlreadyExists: the submission or the campaign is there.
  absl::Status Insert(const CampaignResults& results, const std::string& submission_id,
                      CampaignEvent& event);

  // The campaign of an earlier submission.
  absl::StatusOr<std::optional<std::string>> FindSubmission(const std::string& submission_id);

 private:
  Database& database_;  // Outlives this.
};

}  // namespace lastflop
