#include "report/format.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/figure_text.h"
#include "common/one_line.h"

namespace lastflop {
namespace {

bool IsKnown(std::optional<double> value) { return value.has_value() && std::isfinite(*value); }

// Groups the digits of a whole number's text by three; leaves "-1.9e+40" as it is.
std::string GroupDigits(std::string number) {
  const std::ptrdiff_t first = absl::ascii_isdigit(static_cast<unsigned char>(number[0])) ? 0 : 1;
  if (number.find('e') != std::string::npos) {
    return number;
  }
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(number.size()) - 3; at > first; at -= 3) {
    number.insert(static_cast<size_t>(at), 1, ',');
  }
  return number;
}

std::string Trim(double value) { return absl::StrFormat("%.6g", value); }

}  // namespace

std::string FormatSpeedup(std::optional<double> speedup) {
  return IsKnown(speedup) ? absl::StrCat(RatioText(*speedup), "x") : kNotAvailable;
}

std::string FormatFigure(const std::optional<SpeedupFigure>& figure) {
  if (!figure.has_value()) {
    return kNotAvailable;
  }
  return IsKnown(figure->estimate) ? FigureText(figure->estimate, figure->low, figure->high)
                                   : kNotAvailable;
}

std::string FormatClaim(const std::optional<Claim>& claim) {
  if (!claim.has_value()) {
    return std::string(ToWord(ClaimVerdict::kNone));
  }
  std::string text = Trim(claim->low);
  if (!claim->high.has_value()) {
    absl::StrAppend(&text, "x+");
  } else {
    absl::StrAppend(&text, *claim->high == claim->low ? "" : absl::StrCat("-", Trim(*claim->high)),
                    "x");
  }
  if (claim->of != "step") {
    absl::StrAppend(&text, " of ", claim->of);
  }
  if (claim->batch_low.has_value() || claim->batch_high.has_value()) {
    absl::StrAppend(&text, ", b", claim->batch_low.value_or(1), "-",
                    claim->batch_high.has_value() ? absl::StrCat(*claim->batch_high) : "");
  }
  return text;
}

std::string FormatHours(double hours) {
  constexpr double kHoursPerDay = 8;
  constexpr double kHoursPerWeek = 40;
  if (hours <= 0) return "0h";
  if (hours < 1) return absl::StrCat(Trim(hours * 60), "m");
  if (std::fmod(hours, kHoursPerWeek) == 0) return absl::StrCat(Trim(hours / kHoursPerWeek), "w");
  if (std::fmod(hours, kHoursPerDay) == 0) return absl::StrCat(Trim(hours / kHoursPerDay), "d");
  return absl::StrCat(Trim(hours), "h");
}

std::string FormatCount(std::optional<double> value, bool sign) {
  if (!IsKnown(value)) {
    return kNotAvailable;
  }
  return GroupDigits(WholeText(*value, sign));
}

std::string FormatNumber(std::optional<double> value) {
  if (!IsKnown(value)) {
    return kNotAvailable;
  }
  return std::abs(*value) < 1000 ? absl::StrFormat("%.1f", *value) : FormatCount(value);
}

std::string FormatPercent(std::optional<double> share, bool sign) {
  if (!IsKnown(share)) {
    return kNotAvailable;
  }
  return PercentText(*share, sign);
}

std::string FormatDetectable(std::optional<double> effect) {
  return IsKnown(effect) && *effect > 1 ? ">100%" : FormatPercent(effect);
}

std::string FormatEffect(std::optional<Effect> effect) {
  return effect.has_value() ? std::string(ToWord(*effect)) : kNotAvailable;
}

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(
      PlainLines(text),
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

std::string EscapeMarkdown(absl::string_view text) {
  return absl::StrReplaceAll(OneLine(text), {{"\\", "\\\\"},
                                             {"|", "\\|"},
                                             {"`", "\\`"},
                                             {"*", "\\*"},
                                             {"_", "\\_"},
                                             {"[", "\\["},
                                             {"]", "\\]"},
                                             {"#", "\\#"},
                                             {"~", "\\~"},
                                             {"&", "&amp;"},
                                             {"<", "&lt;"},
                                             {">", "&gt;"}});
}

std::string CsvField(absl::string_view text) {
  const std::string field = PlainLines(text);
  const bool has_special = field.find_first_of(",\"\n") != std::string::npos;
  const bool has_blank_end = !field.empty() && (field.front() == ' ' || field.back() == ' ');
  if (!has_special && !has_blank_end) {
    return field;
  }
  return absl::StrCat("\"", absl::StrReplaceAll(field, {{"\"", "\"\""}}), "\"");
}

}  // namespace lastflop
