#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "common/campaign_results.h"
#include "common/words.h"
#include "planner/ranking.h"

// The ranked report in each of its forms. All are pure functions over the ranking; an unknown
// number is "n/a" for people and null for scripts.
namespace lastflop {

enum class ReportFormat { kTable, kJson, kCsv, kMarkdown, kHtml };
LASTFLOP_ENUM_WORDS(ReportFormat, 5, {ReportFormat::kTable, "table"}, {ReportFormat::kJson, "json"},
                    {ReportFormat::kCsv, "csv"}, {ReportFormat::kMarkdown, "md"},
                    {ReportFormat::kHtml, "html"});

struct RenderOptions {
  bool color = false;  // table: set it only when stdout is a terminal.
  int width = 120;     // table: columns of the terminal.
  // html: the text of Vega, from ReadVega(); "" leaves the charts as plain SVG.
  std::string vega_script;
};

// `ranking` in `format`. Ends in a newline.
std::string Render(const Ranking& ranking, ReportFormat format, const RenderOptions& options);

std::string RenderTable(const Ranking& ranking, bool color, int width);
std::string RenderMarkdown(const Ranking& ranking);
std::string RenderJson(const Ranking& ranking);  // report.schema.json.
std::string RenderCsv(const Ranking& ranking);   // RFC 4180, one row an intervention and point.
std::string RenderHtml(const Ranking& ranking, absl::string_view vega_script);

// The report's JSON with `trials[]`: every trial with its attempts and every sample.
std::string ExportJson(const Ranking& ranking, const CampaignResults& results);

// A file name made from any text: letters, digits, '.', '_' and '-'; never empty, hidden, a path or
// longer than 80. Names that differ can become the same: one that had to be changed ends in `id`,
// where there is one.
std::string SafeFileName(absl::string_view name, absl::string_view id = "");

}  // namespace lastflop
