#include <string>

#include "cli/calibration_file.h"
#include "cli/commands.h"
#include "cli/load_campaign.h"
#include "cli/print_report.h"
#include "cli/read_results.h"
#include "common/exit_codes.h"
#include "planner/prediction.h"
#include "planner/rank.h"

namespace lastflop {

int PreviewCommand(const PreviewFlags& flags, Io& io) {
  const absl::StatusOr<LoadedCampaign> loaded = LoadCampaign(flags.campaign, LayersLoaded::kAll);
  if (!loaded.ok()) {
    return ExitCodeFor(loaded.status(), io.err);
  }
  RankOptions options;
  options.order = FromWord<RankingOrder>(flags.by).value_or(RankingOrder::kNetGain);
  absl::StatusOr<ImportedRows> imported = ReadImported(flags.calibration, flags.warm);
  if (!imported.ok()) {
    return ExitCodeFor(imported.status(), io.err);
  }
  options.imported = &*imported;
  const absl::StatusOr<Ranking> ranking = PreviewCampaign(loaded->campaign, options);
  if (!ranking.ok()) {
    return ExitCodeFor(ranking.status(), io.err);
  }
  PrintRanking(*ranking, flags.format, io);
  return kExitFinished;
}

}  // namespace lastflop
