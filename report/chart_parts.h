#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/strings/string_view.h"

// What the charts are made of. Texts are raw and escaped here; coordinates are pixels of a drawing
// kSvgWidth wide.
namespace lastflop {

using ChartJson = nlohmann::ordered_json;

inline constexpr double kSvgWidth = 960;
inline constexpr double kLabelWidth = 210;
inline constexpr double kAxisHeight = 34;

// JSON that cannot end the script element it stands in.
std::string ForScript(const ChartJson& json);

std::string SvgText(double x, double y, const char* anchor, const std::string& color,
                    absl::string_view text);
std::string SvgLine(double x1, double y1, double x2, double y2, const std::string& color,
                    double width);
// A `title` is what a pointer shows.
std::string SvgRect(double x, double y, double width, double height, const std::string& color,
                    double opacity, const std::string& title);
std::string Svg(double height, const std::string& label, const std::string& body);

// An encoding by a field of the datum.
ChartJson Field(const char* scale, const char* field);

// The parts every Vega specification has: no background of its own, colours of the page.
ChartJson BaseSpec(double height, ChartJson data);

}  // namespace lastflop
