#pragma once

#include <iosfwd>
#include <string>

#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "common/campaign_results.h"

namespace lastflop {

// A campaign from the coordinator or the database file that `flags` names; `id` may be the id, a
// unique prefix of it, a name that one campaign has, or "" when there is only one. InvalidArgument:
// neither source is named.
absl::StatusOr<CampaignResults> ReadResults(const SourceFlags& flags, const std::string& id);

// A campaign that is running in a database file which no coordinator has: it was killed. Says so on
// `err`, with how to go on; nothing is said of any other campaign.
void NoteIfAbandoned(const SourceFlags& flags, const std::string& campaign_id, CampaignState state,
                     std::ostream& err);

// Prints `status` and gives the exit code that it stands for.
int ExitCodeFor(const absl::Status& status, std::ostream& err);

}  // namespace lastflop
