#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/commands.h"
#include "cli/read_export.h"
#include "cli/read_results.h"
#include "cli/row_output.h"
#include "cli/unfinished_cells.h"
#include "common/exit_codes.h"
#include "common/one_line.h"
#include "common/status_macros.h"
#include "planner/compare.h"
#include "planner/rank.h"

namespace lastflop {
namespace {

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

// "FILE.json": an export. "FILE.db" or "FILE.db:ID": a campaign of that database. Anything else: a
// campaign of the source that the flags name.
absl::StatusOr<ComparedCampaign> ReadSide(const SourceFlags& source, const std::string& operand) {
  if (absl::EndsWith(operand, ".json") && (IsFile(operand) || source.db.empty())) {
    return ReadExport(operand);
  }
  SourceFlags from = source;
  std::string id = operand;
  const size_t colon = operand.rfind(':');
  if (IsFile(operand)) {
    from = SourceFlags{.db = operand};
    id.clear();
  } else if (colon != std::string::npos && IsFile(operand.substr(0, colon))) {
    from = SourceFlags{.db = operand.substr(0, colon)};
    id = operand.substr(colon + 1);
  }
  ComparedCampaign compared;
  LASTFLOP_ASSIGN_OR_RETURN(compared.results, ReadResults(from, id));
  compared.environment = MakeRanking(compared.results).environment;
  return compared;
}

std::string NumberText(std::optional<double> value, const char* none = "") {
  return value.has_value() ? absl::StrFormat("%.5g", *value) : none;
}

Rows RowsOf(const CampaignComparison& comparison) {
  Rows rows;
  rows.names = {"intervention", "choice", "point",  "a_us",      "b_us",      "ratio",
                "low",          "high",   "effect", "speedup_a", "speedup_b", "reason"};
  rows.is_number = {false, false, false, true, true, true, true, true, false, true, true, false};
  for (const ComparedCell& cell : comparison.cells) {
    const SpeedupFigure ratio = cell.ratio.value_or(SpeedupFigure{});
    rows.cells.push_back({cell.intervention_id, cell.choice, cell.point, NumberText(cell.a_us),
                          NumberText(cell.b_us),
                          cell.ratio.has_value() ? NumberText(ratio.estimate) : "",
                          NumberText(ratio.low), NumberText(ratio.high),
                          cell.effect.has_value() ? std::string(ToWord(*cell.effect)) : "",
                          NumberText(cell.speedup_a), NumberText(cell.speedup_b), cell.reason});
  }
  return rows;
}

nlohmann::ordered_json NameJson(const ComparedCampaign& campaign) {
  return {{"campaign", campaign.results.campaign.name},
          {"campaign_id", campaign.results.campaign_id},
          {"state", std::string(ToWord(campaign.results.state))}};
}

nlohmann::ordered_json NumberJson(std::optional<double> value) {
  return value.has_value() ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

void WriteJson(const ComparedCampaign& a, const ComparedCampaign& b,
               const CampaignComparison& comparison, int64_t num_unfinished, std::ostream& out) {
  nlohmann::ordered_json json = {{"a", NameJson(a)},
                                 {"b", NameJson(b)},
                                 {"confidence", comparison.confidence},
                                 {"interval_confidence", comparison.interval_confidence},
                                 {"min_effect", comparison.min_effect},
                                 {"regressions", comparison.num_regressions},
                                 {"unfinished", num_unfinished},
                                 {"warnings", comparison.warnings}};
  json["environment"] = nlohmann::ordered_json::array();
  for (const EnvironmentDifference& one : comparison.environment) {
    json["environment"].push_back({{"key", one.key}, {"a", one.a}, {"b", one.b}});
  }
  json["cells"] = nlohmann::ordered_json::array();
  for (const ComparedCell& cell : comparison.cells) {
    const bool has_ratio = cell.ratio.has_value();
    const SpeedupFigure ratio = cell.ratio.value_or(SpeedupFigure{});
    nlohmann::ordered_json effect = nullptr;
    if (cell.effect.has_value()) {
      effect = std::string(ToWord(*cell.effect));
    }
    json["cells"].push_back(
        {{"intervention", cell.intervention_id},
         {"choice", cell.choice},
         {"point", cell.point},
         {"a_us", NumberJson(cell.a_us)},
         {"b_us", NumberJson(cell.b_us)},
         {"ratio",
          {{"estimate", NumberJson(has_ratio ? std::optional(ratio.estimate) : std::nullopt)},
           {"low", NumberJson(ratio.low)},
           {"high", NumberJson(ratio.high)}}},
         {"effect", std::move(effect)},
         {"speedup_a", NumberJson(cell.speedup_a)},
         {"speedup_b", NumberJson(cell.speedup_b)},
         {"regression", cell.is_regression},
         {"reason", cell.reason}});
  }
  out << json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << "\n";
}

// What stands beside the rows; on stderr, so that a CSV stays one.
void WriteNotes(const ComparedCampaign& a, const ComparedCampaign& b,
                const CampaignComparison& comparison, int64_t num_unfinished, std::ostream& err) {
  err << "A: " << OneLine(a.results.campaign.name) << " (" << a.results.campaign_id
      << "), B: " << OneLine(b.results.campaign.name) << " (" << b.results.campaign_id
      << "); ratio is A's time over B's, above 1 B is faster; each interval holds at "
      << absl::StrFormat("%.4g%%", 100 * comparison.interval_confidence)
      << ", so that all verdicts together hold at "
      << absl::StrFormat("%.4g%%", 100 * comparison.confidence) << "\n";
  for (const std::string& warning : comparison.warnings) {
    err << "WARNING: " << OneLine(warning) << "\n";
  }
  if (num_unfinished > 0) {
    err << "WARNING: B is unfinished (" << ToWord(b.results.state) << "): " << num_unfinished
        << " of the cells that A measured have no verdict yet\n";
  }
  for (const EnvironmentDifference& one : comparison.environment) {
    err << "differs: " << OneLine(one.key) << ": " << (one.a.empty() ? "n/a" : OneLine(one.a))
        << " -> " << (one.b.empty() ? "n/a" : OneLine(one.b)) << "\n";
  }
  for (const ComparedCell& cell : comparison.cells) {
    if (cell.is_regression) {
      err << "regression: " << cell.intervention_id << (cell.choice.empty() ? "" : " ")
          << cell.choice << " at " << cell.point << ": "
          << (cell.ratio.has_value() ? absl::StrFormat("%.4gx", cell.ratio->estimate)
                                     : OneLine(cell.reason))
          << "\n";
    }
  }
}

}  // namespace

int CompareCommand(const CompareFlags& flags, Io& io) {
  const absl::StatusOr<ComparedCampaign> a = ReadSide(flags.source, flags.a);
  if (!a.ok()) {
    return ExitCodeFor(a.status(), io.err);
  }
  const absl::StatusOr<ComparedCampaign> b = ReadSide(flags.source, flags.b);
  if (!b.ok()) {
    return ExitCodeFor(b.status(), io.err);
  }
  if (const absl::Status status = CheckComparable(*a, *b); !status.ok()) {
    return ExitCodeFor(status, io.err);
  }
  const CampaignComparison comparison = CompareCampaigns(*a, *b);
  const int64_t num_unfinished = CountUnfinishedCells(comparison, b->results);
  WriteNotes(*a, *b, comparison, num_unfinished, io.err);
  if (flags.format == "json") {
    WriteJson(*a, *b, comparison, num_unfinished, io.out);
  } else {
    WriteRows(RowsOf(comparison), flags.format, io.out);
  }
  if (comparison.num_regressions > 0) {
    return kExitRegression;
  }
  return num_unfinished > 0 ? kExitUnfinished : kExitFinished;
}

}  // namespace lastflop
