#include <string>

#include "absl/strings/str_cat.h"
#include "report/charts.h"
#include "report/document.h"
#include "report/format.h"
#include "report/html_page.h"
#include "report/render.h"

namespace lastflop {
namespace {

const char* ClassOf(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "good";
    case Tone::kBad:
      return "bad";
    case Tone::kUnsure:
      return "unsure";
    case Tone::kMuted:
      return "muted";
    case Tone::kStrong:
      return "strong";
    case Tone::kPlain:
      return "";
  }
  return "";
}

// Columns whose cells are words of a finding.
bool IsFinding(const Column& column) {
  return column.title == "standing" || column.title == "effect" || column.title == "verdict" ||
         column.title == "claim verdict";
}

// "1.2x (1.1 to 1.3)" may break before the parenthesis and nowhere else.
std::string NumberHtml(const std::string& text) {
  const size_t open = text.find(" (");
  if (open == std::string::npos) {
    return absl::StrCat("<span class=\"unit\">", EscapeHtml(text), "</span>");
  }
  return absl::StrCat("<span class=\"unit\">", EscapeHtml(text.substr(0, open)),
                      "</span> <span class=\"unit\">", EscapeHtml(text.substr(open + 1)),
                      "</span>");
}

std::string CellHtml(const Column& column, const Cell& cell) {
  constexpr size_t kLongText = 44;
  const char* const kind = column.right ? "num" : (cell.text.size() > kLongText ? "wide" : "key");
  const std::string text = column.right ? NumberHtml(cell.text) : EscapeHtml(cell.text);
  const std::string inner =
      IsFinding(column) && cell.text != kNotAvailable
          ? absl::StrCat("<span class=\"pill ", ClassOf(cell.tone), "\">", text, "</span>")
          : text;
  const std::string detail =
      cell.detail.empty() ? "" : absl::StrCat("<small>", EscapeHtml(cell.detail), "</small>");
  return absl::StrCat("<td class=\"", kind, " ", ClassOf(cell.tone), "\">", inner, detail, "</td>");
}

void AppendTable(const Table& table, std::string& out) {
  out += "<div class=\"scroll\"><table>\n<thead><tr>";
  for (const Column& column : table.columns) {
    absl::StrAppend(&out, "<th scope=\"col\"", column.right ? " class=\"num\"" : "", ">",
                    column.right ? NumberHtml(column.title) : EscapeHtml(column.title), "</th>");
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    out += "<tr>";
    for (size_t i = 0; i < row.size(); ++i) {
      out += CellHtml(table.columns[i], row[i]);
    }
    out += "</tr>\n";
  }
  out += "</tbody></table></div>\n";
}

void AppendChart(const Chart& chart, const char* legend, std::string& out) {
  if (chart.id.empty()) {
    return;
  }
  // The plain SVG is the one that stays without scripts.
  const std::string svg = absl::StrCat("<svg class=\"plain\"", chart.svg.substr(4));
  absl::StrAppend(&out, "<div class=\"chart\" id=\"", chart.id, "\">", svg,
                  "<div class=\"vega\"></div><script type=\"application/json\">", chart.vega,
                  "</script></div>\n<p class=\"legend\">", legend, "</p>\n");
}

void AppendSection(const Section& section, const Ranking& ranking, std::string& out) {
  absl::StrAppend(&out, "<section id=\"", section.id, "\">\n<h2>", EscapeHtml(section.title),
                  "</h2>\n");
  if (!section.note.empty()) {
    absl::StrAppend(&out, "<p class=\"note\">", EscapeHtml(section.note), "</p>\n");
  }
  if (section.id == "ranking") {
    AppendChart(SpeedupChart(ranking),
                "Dot and line: speedup and interval, coloured by effect. Bar: claimed range. Tick: "
                "ceiling, where it is in sight. Band: minimum effect.",
                out);
  } else if (section.id == "breakdown") {
    AppendChart(BreakdownChart(ranking), "Share of the baseline's step by category.", out);
  }
  if (!section.table.columns.empty() && !section.table.rows.empty()) {
    AppendTable(section.table, out);
  }
  if (!section.items.empty()) {
    out += "<ul>\n";
    for (const std::string& item : section.items) {
      absl::StrAppend(&out, "<li>", EscapeHtml(item), "</li>\n");
    }
    out += "</ul>\n";
  }
  out += "</section>\n";
}

}  // namespace

std::string RenderHtml(const Ranking& ranking, absl::string_view vega_script) {
  const Document document = MakeDocument(ranking);
  // Nothing is loaded: a report that is mailed around stays whole, and tells nobody it was opened.
  std::string out = absl::StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'\">\n"
      "<title>",
      EscapeHtml(document.title), "</title>\n<style>", kPageStyle,
      "</style>\n</head>\n<body>\n<main>\n<h1>", EscapeHtml(document.title), "</h1>\n");
  if (!document.question.empty()) {
    absl::StrAppend(&out, "<p class=\"question\">", EscapeHtml(document.question), "</p>\n");
  }
  absl::StrAppend(&out, "<p class=\"answer\">", EscapeHtml(document.answer), "</p>\n");
  for (const Section& section : document.sections) {
    AppendSection(section, ranking, out);
  }
  absl::StrAppend(&out, "<footer>lastflop, campaign ", EscapeHtml(ranking.campaign_id), ", ",
                  ToWord(ranking.state), "</footer>\n</main>\n");
  if (!vega_script.empty()) {
    absl::StrAppend(&out, "<script>", vega_script, "</script>\n<script>", kChartScript,
                    "</script>\n");
  }
  out += "</body>\n</html>\n";
  return out;
}

}  // namespace lastflop
