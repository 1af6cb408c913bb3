#include <string>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "planner/explain.h"
#include "planner/rank.h"

namespace lastflop {

int ExplainCommand(const ExplainFlags& flags, Io& io) {
  const absl::StatusOr<CampaignResults> results = ReadResults(flags.source, flags.campaign);
  if (!results.ok()) {
    return ExitCodeFor(results.status(), io.err);
  }
  RankOptions options;
  options.order = FromWord<RankingOrder>(flags.by).value_or(RankingOrder::kNetGain);
  const absl::StatusOr<std::vector<ExplainedLine>> lines =
      Explain(MakeRanking(*results, options), results->campaign, flags.id);
  if (!lines.ok()) {
    return ExitCodeFor(lines.status(), io.err);
  }
  if (flags.format == "table") {
    for (const ExplainedLine& line : *lines) {
      io.out << OneLine(absl::StrCat(line.what, ": ", line.text, " [", line.origin, "]")) << "\n";
    }
    return kExitFinished;
  }
  Rows rows;
  rows.names = {"what", "text", "origin"};
  rows.is_number = {false, false, false};
  for (const ExplainedLine& line : *lines) {
    rows.cells.push_back({line.what, line.text, line.origin});
  }
  WriteRows(rows, flags.format, io.out);
  return kExitFinished;
}

}  // namespace lastflop
