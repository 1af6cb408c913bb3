#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "report/chart_parts.h"
#include "report/charts.h"
#include "report/format.h"

namespace lastflop {
namespace {

using Json = ChartJson;

std::string CategoryColor(OpCategory category) {
  return absl::StrCat("var(--cat-", ToWord(category), ")");
}

// One bar of the breakdown chart.
struct Bar {
  std::string label;
  const std::vector<BreakdownShare>* parts = nullptr;
};

std::vector<Bar> Bars(const Ranking& ranking) {
  std::vector<Bar> bars;
  if (!ranking.breakdown.empty() && ranking.baseline.size() > 1) {
    bars.push_back({"mix", &ranking.breakdown});
  }
  for (const BaselinePoint& point : ranking.baseline) {
    if (!point.breakdown.empty()) {
      bars.push_back({point.label, &point.breakdown});
    }
  }
  return bars;
}

std::vector<OpCategory> UsedCategories(const std::vector<Bar>& bars) {
  std::vector<OpCategory> used;
  for (const auto& [category, word] : EnumWords<OpCategory>::kWords) {
    const auto has_it = [category = category](const Bar& bar) {
      return std::any_of(
          bar.parts->begin(), bar.parts->end(),
          [category](const BreakdownShare& part) { return part.category == category; });
    };
    if (std::any_of(bars.begin(), bars.end(), has_it)) {
      used.push_back(category);
    }
  }
  return used;
}

double ShareOf(const Bar& bar, OpCategory category) {
  for (const BreakdownShare& part : *bar.parts) {
    if (part.category == category) {
      return part.share;
    }
  }
  return 0;
}

std::string BreakdownSvg(const std::vector<Bar>& bars, const std::string& label) {
  const double plot = kSvgWidth - kLabelWidth - 20;
  const std::vector<OpCategory> categories = UsedCategories(bars);
  std::string body;
  for (size_t i = 0; i < bars.size(); ++i) {
    const double y = 34 * static_cast<double>(i) + 4;
    body += SvgText(kLabelWidth - 10, y + 17, "end", "var(--ink)", bars[i].label);
    double x = kLabelWidth;
    for (const OpCategory category : categories) {
      const double width = plot * ShareOf(bars[i], category);
      body +=
          SvgRect(x, y, width, 24, CategoryColor(category), 1,
                  absl::StrCat(ToWord(category), " ", FormatPercent(ShareOf(bars[i], category))));
      if (width > 44) {
        body += SvgText(x + width / 2, y + 16, "middle", "var(--on-cat)",
                        FormatPercent(ShareOf(bars[i], category)));
      }
      x += width;
    }
  }
  const double legend_top = 34 * static_cast<double>(bars.size()) + 18;
  constexpr size_t kLegendColumns = 6;
  for (size_t i = 0; i < categories.size(); ++i) {
    const double x = kLabelWidth + static_cast<double>(i % kLegendColumns) * plot / kLegendColumns;
    const double y = legend_top + 20 * static_cast<double>(i / kLegendColumns);
    body += SvgRect(x, y - 9, 11, 11, CategoryColor(categories[i]), 1, "");
    body += SvgText(x + 17, y + 1, "start", "var(--ink)", ToWord(categories[i]));
  }
  const double rows = std::ceil(static_cast<double>(categories.size()) / kLegendColumns);
  return Svg(legend_top + 20 * rows, label, body);
}

Json BreakdownVega(const std::vector<Bar>& bars) {
  Json values = Json::array();
  const std::vector<OpCategory> categories = UsedCategories(bars);
  for (const Bar& bar : bars) {
    double start = 0;
    for (const OpCategory category : categories) {
      const double share = ShareOf(bar, category);
      values.push_back({{"bar", bar.label},
                        {"category", std::string(ToWord(category))},
                        {"start", start},
                        {"end", start + share},
                        {"text", share > 0.06 ? FormatPercent(share) : ""},
                        {"tooltip", absl::StrCat(bar.label, ", ", ToWord(category), ": ",
                                                 FormatPercent(share))}});
      start += share;
    }
  }
  Json names = Json::array();
  Json colors = Json::array();
  for (const OpCategory category : categories) {
    names.push_back(std::string(ToWord(category)));
    colors.push_back(CategoryColor(category));
  }
  Json spec = BaseSpec(34 * static_cast<double>(bars.size()),
                       Json::array({{{"name", "parts"}, {"values", std::move(values)}}}));
  spec["scales"] =
      Json::array({{{"name", "x"}, {"type", "linear"}, {"domain", {0, 1}}, {"range", "width"}},
                   {{"name", "y"},
                    {"type", "band"},
                    {"padding", 0.25},
                    {"domain", {{"data", "parts"}, {"field", "bar"}}},
                    {"range", "height"}},
                   {{"name", "color"}, {"type", "ordinal"}, {"domain", names}, {"range", colors}}});
  spec["axes"] = Json::array(
      {{{"orient", "bottom"}, {"scale", "x"}, {"format", "%"}, {"title", "share of the step"}},
       {{"orient", "left"}, {"scale", "y"}, {"domain", false}, {"ticks", false}}});
  spec["legends"] = Json::array(
      {{{"fill", "color"}, {"orient", "bottom"}, {"direction", "horizontal"}, {"columns", 6}}});
  spec["marks"] = Json::array(
      {{{"type", "rect"},
        {"from", {{"data", "parts"}}},
        {"encode",
         {{"update",
           {{"x", Field("x", "start")},
            {"x2", Field("x", "end")},
            {"y", Field("y", "bar")},
            {"height", {{"scale", "y"}, {"band", 1}}},
            {"fill", Field("color", "category")},
            {"tooltip", {{"field", "tooltip"}}}}}}}},
       {{"type", "text"},
        {"from", {{"data", "parts"}}},
        {"interactive", false},
        {"encode",
         {{"update",
           {{"x", {{"signal", "(scale('x', datum.start) + scale('x', datum.end)) / 2"}}},
            {"y", {{"scale", "y"}, {"field", "bar"}, {"band", 0.5}}},
            {"align", {{"value", "center"}}},
            {"baseline", {{"value", "middle"}}},
            {"fontSize", {{"value", 11}}},
            {"fill", {{"value", "var(--on-cat)"}}},
            {"text", {{"field", "text"}}}}}}}}});
  return spec;
}

}  // namespace

Chart BreakdownChart(const Ranking& ranking) {
  const std::vector<Bar> bars = Bars(ranking);
  if (bars.empty()) {
    return {};
  }
  Chart chart;
  chart.id = "chart-breakdown";
  chart.label = "Share of each category in the baseline's step, at every point and in the mix";
  chart.vega = ForScript(BreakdownVega(bars));
  chart.svg = BreakdownSvg(bars, chart.label);
  return chart;
}

}  // namespace lastflop
