#include "common/figure_text.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lastflop {
namespace {

constexpr double kLeastRatio = 0.001;
constexpr double kMostRatio = 1000;
constexpr double kMostWhole = 1e9;
constexpr double kMostPercent = 1e5;

}  // namespace

std::string RatioText(double ratio) {
  if (ratio < kLeastRatio) {
    return "<0.001";
  }
  return ratio > kMostRatio ? ">1000" : absl::StrFormat("%.3f", ratio);
}

std::string FigureText(double estimate, std::optional<double> low, std::optional<double> high) {
  std::string text = absl::StrCat(RatioText(estimate), "x");
  const bool has_interval =
      low.has_value() && high.has_value() && std::isfinite(*low) && std::isfinite(*high);
  if (has_interval) {
    absl::StrAppend(&text, " (", RatioText(*low), " to ", RatioText(*high), ")");
  }
  return text;
}

std::string WholeText(double value, bool sign) {
  const double rounded = std::round(value);
  const double size = std::abs(rounded);
  const std::string digits =
      size < kMostWhole ? absl::StrFormat("%.0f", size) : absl::StrFormat("%.1e", size);
  return absl::StrCat(rounded < 0 ? "-" : sign && rounded > 0 ? "+" : "", digits);
}

std::string PercentText(double share, bool sign) {
  const double percent = 100 * share;
  const std::string number = std::abs(percent) < kMostPercent ? absl::StrFormat("%.1f", percent)
                                                              : absl::StrFormat("%.1e", percent);
  return absl::StrCat(sign && number.front() != '-' ? "+" : "", number, "%");
}

}  // namespace lastflop
