#include "cli/list_database.h"

#include <string>
#include <vector>

#include "common/status_macros.h"
#include "db/campaign_reader.h"

namespace lastflop {

absl::StatusOr<std::vector<CampaignSummary>> ListDatabase(const std::string& db) {
  if (db.empty()) {
    return absl::InvalidArgumentError(
        "where are the campaigns? name a coordinator with --server ADDR or a database with --db "
        "FILE");
  }
  LASTFLOP_ASSIGN_OR_RETURN(Database database, OpenForReading(db));
  return ListCampaigns(database);
}

}  // namespace lastflop
