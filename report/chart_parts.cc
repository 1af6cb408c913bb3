#include "report/chart_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/one_line.h"
#include "report/format.h"

namespace lastflop {

std::string ForScript(const ChartJson& json) {
  return absl::StrReplaceAll(json.dump(-1, ' ', true, ChartJson::error_handler_t::replace),
                             {{"<", "\\u003c"}, {">", "\\u003e"}, {"&", "\\u0026"}});
}

std::string SvgText(double x, double y, const char* anchor, const std::string& color,
                    absl::string_view text) {
  return absl::StrFormat(
      "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" style=\"fill:%s\">%s</text>", x, y, anchor,
      color, EscapeHtml(OneLine(text)));
}

std::string SvgLine(double x1, double y1, double x2, double y2, const std::string& color,
                    double width) {
  return absl::StrFormat(
      "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
      "style=\"stroke:%s;stroke-width:%.1f\"/>",
      x1, y1, x2, y2, color, width);
}

std::string SvgRect(double x, double y, double width, double height, const std::string& color,
                    double opacity, const std::string& title) {
  return absl::StrFormat(
      "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
      "style=\"fill:%s;fill-opacity:%.2f\"><title>%s</title></rect>",
      x, y, std::max(width, 0.0), height, color, opacity, EscapeHtml(OneLine(title)));
}

std::string Svg(double height, const std::string& label, const std::string& body) {
  return absl::StrFormat("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"%s\">%s</svg>",
                         kSvgWidth, height, EscapeHtml(label), body);
}

ChartJson Field(const char* scale, const char* field) {
  return {{"scale", scale}, {"field", field}};
}

ChartJson BaseSpec(double height, ChartJson data) {
  return {{"$schema", "https://vega.github.io/schema/vega/v5.json"},
          {"background", nullptr},
          {"width", kSvgWidth},
          {"height", height},
          {"padding", 4},
          {"autosize", {{"type", "fit-x"}, {"contains", "padding"}}},
          {"config",
           {{"axis",
             {{"labelColor", "var(--ink)"},
              {"titleColor", "var(--muted)"},
              {"gridColor", "var(--line)"},
              {"domainColor", "var(--line)"},
              {"tickColor", "var(--line)"},
              {"labelFontSize", 12},
              {"titleFontSize", 12},
              {"titleFontWeight", "normal"},
              {"labelLimit", 240}}},
            {"legend", {{"labelColor", "var(--ink)"}, {"labelFontSize", 12}}}}},
          {"data", std::move(data)}};
}

}  // namespace lastflop
