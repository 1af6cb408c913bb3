#include "cli/read_results.h"

#include <memory>
#include <ostream>
#include <string>

#include "cli/coordinator_client.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "common/shell_quote.h"
#include "common/status_macros.h"
#include "db/campaign_reader.h"
#include "db/file_lock.h"

namespace lastflop {

absl::StatusOr<CampaignResults> ReadResults(const SourceFlags& flags, const std::string& id) {
  if (!flags.server.empty()) {
    LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> client,
                              CoordinatorClient::Open(flags));
    return client->Fetch(id);
  }
  if (flags.db.empty()) {
    return absl::InvalidArgumentError(
        "where are the results? name a coordinator with --server ADDR or a database with --db "
        "FILE; this folder has no lastflop.db");
  }
  LASTFLOP_ASSIGN_OR_RETURN(Database database, OpenForReading(flags.db));
  LASTFLOP_ASSIGN_OR_RETURN(const std::string campaign_id, ResolveCampaign(database, id));
  return ReadCampaign(database, campaign_id);
}

void NoteIfAbandoned(const SourceFlags& flags, const std::string& campaign_id, CampaignState state,
                     std::ostream& err) {
  if (!flags.server.empty() || state != CampaignState::kRunning || FileLock::IsHeld(flags.db)) {
    return;
  }
  err << "campaign " << campaign_id << " was running, but no coordinator has " << flags.db
      << " any more; what is done is kept, `lastflop resume " << campaign_id << " --db "
      << ShellQuoted(flags.db) << "` goes on with it\n";
}

int ExitCodeFor(const absl::Status& status, std::ostream& err) {
  // Mistakes in a file carry FILE:LINE:COLUMN at their start; nothing may stand before it.
  const bool is_of_input = absl::IsInvalidArgument(status) || absl::IsNotFound(status);
  err << (is_of_input ? "" : "lastflop: ") << PlainLines(status.message()) << "\n";
  return ExitCodeOf(status);
}

}  // namespace lastflop
