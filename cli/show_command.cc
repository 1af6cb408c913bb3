#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/coordinator_client.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "common/campaign_results.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "common/status_macros.h"
#include "planner/trial_speedups.h"

namespace lastflop {
namespace {

// What Show() of a coordinator says, from a database.
ShownCampaign ShownFrom(const CampaignResults& results) {
  ShownCampaign shown;
  shown.summary = Summarize(results);
  const std::map<std::string, double> speedups = TrialSpeedups(results);
  for (const TrialRecord& trial : results.trials) {
    TrialLine line{
        .trial_id = trial.spec.trial_id,
        .intervention_id = trial.spec.intervention_id,
        .choice = trial.spec.choice,
        .point = results.campaign.points[static_cast<size_t>(trial.spec.point_index)].Label(),
        .state = std::string(WordOf(trial)),
        .reason = trial.reason};
    for (const AttemptRecord& attempt : results.attempts) {
      line.num_attempts += attempt.result.trial_id == trial.spec.trial_id ? 1 : 0;
    }
    if (const auto found = speedups.find(line.trial_id); found != speedups.end()) {
      line.speedup = found->second;
    }
    shown.trials.push_back(std::move(line));
  }
  return shown;
}

absl::StatusOr<ShownCampaign> Shown(const IdFlags& flags) {
  if (flags.source.server.empty()) {
    LASTFLOP_ASSIGN_OR_RETURN(const CampaignResults results, ReadResults(flags.source, flags.id));
    return ShownFrom(results);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<CoordinatorClient> client,
                            CoordinatorClient::Open(flags.source));
  return client->Show(flags.id);
}

}  // namespace

int ShowCommand(const IdFlags& flags, Io& io) {
  const absl::StatusOr<ShownCampaign> shown = Shown(flags);
  if (!shown.ok()) {
    return ExitCodeFor(shown.status(), io.err);
  }
  NoteIfAbandoned(flags.source, shown->summary.campaign_id, shown->summary.state, io.err);
  Rows rows;
  rows.names = {"trial", "intervention", "choice",  "point",
                "state", "attempts",     "speedup", "reason"};
  rows.is_number = {false, false, false, false, false, true, true, false};
  for (const TrialLine& trial : shown->trials) {
    rows.cells.push_back({trial.trial_id, trial.intervention_id, trial.choice, trial.point,
                          trial.state, absl::StrCat(trial.num_attempts),
                          trial.speedup > 0 ? absl::StrFormat("%.4f", trial.speedup) : "",
                          trial.reason});
  }
  if (flags.format == "table") {
    io.out << OneLine(shown->summary.name) << " (" << shown->summary.campaign_id
           << "): " << ToWord(shown->summary.state) << "\n";
  }
  WriteRows(rows, flags.format, io.out);
  return kExitFinished;
}

}  // namespace lastflop
