#include "cli/print_report.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/calibration_file.h"
#include "common/share_path.h"
#include "planner/rank.h"
#include "report/render.h"
#include "report/vega.h"

namespace lastflop {

Ranking RankingBy(const CampaignResults& results, const std::string& by) {
  RankOptions rank_options;
  rank_options.order = FromWord<RankingOrder>(by).value_or(RankingOrder::kNetGain);
  // `lastflop import` in this folder is for predictions beside what was measured, too.
  absl::StatusOr<ImportedRows> imported = ReadImported({}, /*warm=*/false);
  rank_options.imported = imported.ok() ? &*imported : nullptr;
  Ranking ranking = MakeRanking(results, rank_options);
  if (!imported.ok()) {
    ranking.assumptions.push_back(
        absl::StrCat("prediction: without imported rows, which cannot be "
                     "read: ",
                     imported.status().message()));
  }
  return ranking;
}

void PrintReport(const CampaignResults& results, const std::string& format, const std::string& by,
                 Io& io) {
  PrintRanking(RankingBy(results, by), format, io);
}

std::string RankingText(const Ranking& ranking, const std::string& format, bool is_for_file,
                        const Io& io) {
  const ReportFormat report_format = FromWord<ReportFormat>(format).value_or(ReportFormat::kTable);
  RenderOptions options;
  if (!is_for_file) {
    options.color = io.is_out_terminal;
    options.width = io.width;
  }
  if (report_format == ReportFormat::kHtml) {
    const absl::StatusOr<std::string> share = SharePath("experiments");
    options.vega_script = ReadVega(VegaDirectories(share.ok() ? *share + "/.." : ""));
  }
  return Render(ranking, report_format, options);
}

void PrintRanking(const Ranking& ranking, const std::string& format, Io& io) {
  io.out << RankingText(ranking, format, /*is_for_file=*/false, io) << std::flush;
}

}  // namespace lastflop
