#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/one_line.h"
#include "report/chart_parts.h"
#include "report/charts.h"
#include "report/format.h"

namespace lastflop {
namespace {

using Json = ChartJson;

constexpr double kRowHeight = 28;

std::string EffectColor(std::optional<Effect> effect) {
  if (effect == Effect::kFaster) return "var(--good)";
  if (effect == Effect::kSlower) return "var(--bad)";
  if (effect == Effect::kSame) return "var(--accent)";
  return "var(--unsure)";
}

// One line of the speedup chart.
struct SpeedupRow {
  std::string id;
  double estimate = 1;
  std::optional<double> low;
  std::optional<double> high;
  std::optional<double> claim_low;  // Claims about the step only: others are of another scale.
  std::optional<double> claim_high;
  std::optional<double> ceiling;
  std::string color;
  std::string tooltip;
};

std::vector<SpeedupRow> SpeedupRows(const Ranking& ranking) {
  std::vector<SpeedupRow> rows;
  for (const RankedIntervention& one : ranking.interventions) {
    if (!one.mix.has_value()) {
      continue;
    }
    SpeedupRow row;
    row.id = OneLine(one.id);
    row.estimate = one.mix->estimate;
    row.low = one.mix->low;
    row.high = one.mix->high;
    if (one.claim.has_value() && one.claim->of == "step") {
      row.claim_low = one.claim->low;
      row.claim_high = one.claim->high.value_or(one.claim->low);
    }
    row.ceiling = one.ceiling;
    row.color = EffectColor(one.effect);
    row.tooltip =
        absl::StrCat(row.id, ": ", FormatFigure(one.mix), ", ", FormatEffect(one.effect),
                     ", ceiling ", FormatSpeedup(one.ceiling), ", claim ", FormatClaim(one.claim));
    rows.push_back(std::move(row));
  }
  return rows;
}

struct Range {
  double low = 1;
  double high = 1;
};

// What the axis covers: all figures, intervals as far as three times the highest figure, claims and
// ceilings up to twice as far away. What goes on past the axis is cut at its end.
Range SpeedupRange(const std::vector<SpeedupRow>& rows, double min_effect) {
  Range range{.low = 1 - 2 * min_effect, .high = 1 + 2 * min_effect};
  for (const SpeedupRow& row : rows) {
    range.low = std::min({range.low, row.estimate, row.low.value_or(row.estimate)});
    range.high = std::max(range.high, row.estimate);
  }
  const double most = 3 * range.high;
  for (const SpeedupRow& row : rows) {
    range.high = std::max(range.high, std::min(most, row.high.value_or(row.estimate)));
  }
  const double far = 1 + 2 * (range.high - 1);
  for (const SpeedupRow& row : rows) {
    range.high = std::max({range.high, std::min(far, row.claim_high.value_or(1)),
                           std::min(far, row.ceiling.value_or(1))});
  }
  const double margin = 0.04 * (range.high - range.low);
  return {.low = range.low - margin, .high = range.high + margin};
}

// A round distance between ticks, about six of them.
double TickStep(const Range& range) {
  const double raw = (range.high - range.low) / 6;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) {
      return factor * power;
    }
  }
  return 10 * power;
}

std::string SpeedupSvg(const std::vector<SpeedupRow>& rows, const Range& range, double min_effect,
                       const std::string& label) {
  const double plot = kSvgWidth - kLabelWidth - 20;
  const double bottom = kRowHeight * static_cast<double>(rows.size()) + 6;
  const auto x = [&](double value) {
    return kLabelWidth +
           plot * (std::clamp(value, range.low, range.high) - range.low) / (range.high - range.low);
  };
  std::string body = SvgRect(x(1 - min_effect), 0, x(1 + min_effect) - x(1 - min_effect), bottom,
                             "var(--muted)", 0.14, "minimum effect");
  const double step = TickStep(range);
  for (double tick = std::ceil(range.low / step) * step; tick <= range.high; tick += step) {
    body += SvgLine(x(tick), 0, x(tick), bottom, "var(--line)", 1);
    body += SvgText(x(tick), bottom + 18, "middle", "var(--muted)", absl::StrFormat("%.4gx", tick));
  }
  body += SvgLine(x(1), 0, x(1), bottom, "var(--ink)", 1.2);
  for (size_t i = 0; i < rows.size(); ++i) {
    const SpeedupRow& row = rows[i];
    const double y = kRowHeight * (static_cast<double>(i) + 0.5) + 3;
    body += SvgText(kLabelWidth - 10, y + 4, "end", "var(--ink)", row.id);
    if (row.claim_low.has_value() && *row.claim_low <= range.high) {
      body +=
          SvgRect(x(*row.claim_low), y - 7, std::max(x(*row.claim_high) - x(*row.claim_low), 2.0),
                  14, "var(--accent)", 0.16, "claimed");
    }
    if (row.ceiling.has_value() && *row.ceiling <= range.high) {
      body += SvgLine(x(*row.ceiling), y - 9, x(*row.ceiling), y + 9, "var(--muted)", 2);
    }
    if (row.low.has_value() && row.high.has_value()) {
      body += SvgLine(x(*row.low), y, x(*row.high), y, row.color, 3);
    }
    absl::StrAppendFormat(&body,
                          "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" style=\"fill:%s\"><title>%s"
                          "</title></circle>",
                          x(row.estimate), y, row.color, EscapeHtml(row.tooltip));
  }
  return Svg(bottom + kAxisHeight, label, body);
}

Json OrNull(std::optional<double> value) {
  return value.has_value() ? Json(*value) : Json(nullptr);
}

Json SpeedupVega(const std::vector<SpeedupRow>& rows, const Range& range, double min_effect) {
  Json values = Json::array();
  for (const SpeedupRow& row : rows) {
    values.push_back({{"id", row.id},
                      {"estimate", row.estimate},
                      {"low", OrNull(row.low)},
                      {"high", OrNull(row.high)},
                      {"claim_low", OrNull(row.claim_low)},
                      {"claim_high", OrNull(row.claim_high)},
                      {"ceiling", OrNull(row.ceiling)},
                      {"color", row.color},
                      {"tooltip", row.tooltip}});
  }
  Json spec = BaseSpec(kRowHeight * static_cast<double>(rows.size()),
                       Json::array({{{"name", "rows"}, {"values", std::move(values)}}}));
  spec["scales"] = Json::array({{{"name", "x"},
                                 {"type", "linear"},
                                 {"domain", {range.low, range.high}},
                                 {"zero", false},
                                 {"clamp", true},
                                 {"range", "width"}},
                                {{"name", "y"},
                                 {"type", "band"},
                                 {"domain", {{"data", "rows"}, {"field", "id"}}},
                                 {"range", "height"}}});
  spec["axes"] =
      Json::array({{{"orient", "bottom"},
                    {"scale", "x"},
                    {"grid", true},
                    {"tickCount", 6},
                    {"title", "speedup in the mix"}},
                   {{"orient", "left"}, {"scale", "y"}, {"domain", false}, {"ticks", false}}});
  const Json middle = {{"scale", "y"}, {"field", "id"}, {"band", 0.5}};
  const auto mark = [](const char* type, Json encode, const char* test) {
    Json transformed = {{"type", type}, {"from", {{"data", "rows"}}}};
    encode["opacity"] = Json::array({{{"test", test}, {"value", 1}}, {{"value", 0}}});
    encode["tooltip"] = {{"field", "tooltip"}};
    transformed["encode"] = {{"update", std::move(encode)}};
    return transformed;
  };
  const Json top = {{"value", 0}};
  const Json bottom = {{"signal", "height"}};
  spec["marks"] = Json::array(
      {{{"type", "rect"},
        {"encode",
         {{"update",
           {{"x", {{"scale", "x"}, {"value", 1 - min_effect}}},
            {"x2", {{"scale", "x"}, {"value", 1 + min_effect}}},
            {"y", top},
            {"y2", bottom},
            {"fill", {{"value", "var(--muted)"}}},
            {"fillOpacity", {{"value", 0.14}}}}}}}},
       {{"type", "rule"},
        {"encode",
         {{"update",
           {{"x", {{"scale", "x"}, {"value", 1}}},
            {"y", top},
            {"y2", bottom},
            {"stroke", {{"value", "var(--ink)"}}}}}}}},
       mark("rect",
            {{"x", Field("x", "claim_low")},
             {"x2", Field("x", "claim_high")},
             {"yc", middle},
             {"height", {{"value", 14}}},
             {"fill", {{"value", "var(--accent)"}}},
             {"fillOpacity", {{"value", 0.16}}}},
            "datum.claim_low !== null"),
       mark("symbol",
            {{"x", Field("x", "ceiling")},
             {"y", middle},
             {"shape", {{"value", "stroke"}}},
             {"angle", {{"value", 90}}},
             {"size", {{"value", 300}}},
             {"stroke", {{"value", "var(--muted)"}}},
             {"strokeWidth", {{"value", 2}}}},
            absl::StrFormat("datum.ceiling !== null && datum.ceiling <= %.9g", range.high).c_str()),
       mark("rule",
            {{"x", Field("x", "low")},
             {"x2", Field("x", "high")},
             {"y", middle},
             {"stroke", {{"field", "color"}}},
             {"strokeWidth", {{"value", 3}}}},
            "datum.low !== null"),
       mark("symbol",
            {{"x", Field("x", "estimate")},
             {"y", middle},
             {"size", {{"value", 90}}},
             {"fill", {{"field", "color"}}}},
            "true")});
  return spec;
}

}  // namespace

Chart SpeedupChart(const Ranking& ranking) {
  const std::vector<SpeedupRow> rows = SpeedupRows(ranking);
  if (rows.empty()) {
    return {};
  }
  const Range range = SpeedupRange(rows, ranking.min_effect);
  Chart chart;
  chart.id = "chart-speedup";
  chart.label = "Speedup in the mix with its interval, the claim (bar) and the ceiling (tick)";
  chart.vega = ForScript(SpeedupVega(rows, range, ranking.min_effect));
  chart.svg = SpeedupSvg(rows, range, ranking.min_effect, chart.label);
  return chart;
}

}  // namespace lastflop
