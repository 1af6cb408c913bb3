#include <string>

#include "cli/commands.h"
#include "cli/load_campaign.h"
#include "cli/read_results.h"
#include "common/exit_codes.h"
#include "common/expand_trials.h"
#include "common/one_line.h"

namespace lastflop {

int ValidateCommand(const CampaignFlags& flags, Io& io) {
  const absl::StatusOr<LoadedCampaign> loaded = LoadCampaign(flags);
  if (!loaded.ok()) {
    return ExitCodeFor(loaded.status(), io.err);
  }
  const absl::StatusOr<std::vector<TrialSpec>> trials = ExpandTrials(loaded->campaign);
  if (!trials.ok()) {
    return ExitCodeFor(trials.status(), io.err);
  }
  for (const std::string& warning : loaded->campaign.warnings) {
    io.err << "warning: " << PlainLines(warning) << "\n";
  }
  int num_settled = 0;
  for (const TrialSpec& trial : *trials) {
    if (trial.settled.has_value()) {
      ++num_settled;
      io.err << trial.intervention_id << " at "
             << loaded->campaign.points[static_cast<size_t>(trial.point_index)].Label() << ": "
             << ToWord(*trial.settled) << ": " << OneLine(trial.settled_reason) << "\n";
    }
  }
  io.out << flags.file << ": valid: " << loaded->campaign.interventions.size() << " interventions, "
         << loaded->campaign.points.size() << " points, "
         << trials->size() - static_cast<size_t>(num_settled) << " trials to run\n";
  return kExitFinished;
}

}  // namespace lastflop
