#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/coordinator_client.h"
#include "common/campaign_summary.h"
#include "db/worker_store.h"

// What a database lists without a coordinator. Each is InvalidArgument when `db` is "": neither a
// database nor a coordinator was named; else errors as OpenForReading().
namespace lastflop {

absl::StatusOr<std::vector<CampaignSummary>> CampaignsInDatabase(const std::string& db);

// As the coordinator last stored them; what each does at the moment is not known ("").
absl::StatusOr<std::vector<WorkerLine>> WorkersInDatabase(const std::string& db);

// Calls `on_line` for each stored line of `source` ("" for all), oldest first.
absl::Status LogsInDatabase(const std::string& db, const std::string& source,
                            const std::function<void(const LogLine&)>& on_line);

}  // namespace lastflop
