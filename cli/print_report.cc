#include "cli/print_report.h"

#include <string>

#include "common/share_path.h"
#include "planner/rank.h"
#include "report/render.h"
#include "report/vega.h"

namespace lastflop {

void PrintReport(const CampaignResults& results, const std::string& format, const std::string& by,
                 Io& io) {
  RankOptions rank_options;
  rank_options.order = FromWord<RankingOrder>(by).value_or(RankingOrder::kNetGain);
  PrintRanking(MakeRanking(results, rank_options), format, io);
}

void PrintRanking(const Ranking& ranking, const std::string& format, Io& io) {
  const ReportFormat report_format = FromWord<ReportFormat>(format).value_or(ReportFormat::kTable);
  RenderOptions options;
  options.color = io.is_out_terminal;
  options.width = io.width;
  if (report_format == ReportFormat::kHtml) {
    const absl::StatusOr<std::string> share = SharePath("experiments");
    options.vega_script = ReadVega(VegaDirectories(share.ok() ? *share + "/.." : ""));
  }
  io.out << Render(ranking, report_format, options) << std::flush;
}

}  // namespace lastflop
