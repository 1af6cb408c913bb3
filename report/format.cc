#include "report/format.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace lastflop {
namespace {

bool IsKnown(std::optional<double> value) { return value.has_value() && std::isfinite(*value); }

// Groups the digits of an integer's text by three.
std::string GroupDigits(std::string digits) {
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

std::string Trim(double value) { return absl::StrFormat("%.6g", value); }

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

}  // namespace

std::string FormatSpeedup(std::optional<double> speedup) {
  return IsKnown(speedup) ? absl::StrFormat("%.3fx", *speedup) : kNotAvailable;
}

std::string FormatFigure(const std::optional<SpeedupFigure>& figure) {
  if (!figure.has_value()) {
    return kNotAvailable;
  }
  std::string text = FormatSpeedup(figure->estimate);
  if (IsKnown(figure->low) && IsKnown(figure->high)) {
    absl::StrAppendFormat(&text, " (%.3f to %.3f)", *figure->low, *figure->high);
  }
  return text;
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
  const double rounded = std::round(*value);
  const std::string digits = GroupDigits(absl::StrFormat("%.0f", std::abs(rounded)));
  if (rounded < 0) return absl::StrCat("-", digits);
  return sign && rounded > 0 ? absl::StrCat("+", digits) : digits;
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
  return sign ? absl::StrFormat("%+.1f%%", 100 * *share) : absl::StrFormat("%.1f%%", 100 * *share);
}

std::string FormatEffect(std::optional<Effect> effect) {
  return effect.has_value() ? std::string(ToWord(*effect)) : kNotAvailable;
}

std::string OneLine(absl::string_view text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    // U+0080 to U+009F are control characters as well: 0xc2 0x80 to 0xc2 0x9f.
    const bool is_c1 = text[i] == '\xc2' && i + 1 < text.size() &&
                       (static_cast<unsigned char>(text[i + 1]) & 0xe0) == 0x80;
    if (is_c1) {
      ++i;
    }
    const char c = is_c1 || IsControl(text[i]) ? ' ' : text[i];
    line.push_back(c);
  }
  return line;
}

std::string EscapeHtml(absl::string_view text) {
  return absl::StrReplaceAll(
      text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
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
  const bool has_special = text.find_first_of(",\"\r\n") != absl::string_view::npos;
  const bool has_blank_end = !text.empty() && (text.front() == ' ' || text.back() == ' ' ||
                                               text.front() == '\t' || text.back() == '\t');
  if (!has_special && !has_blank_end) {
    return std::string(text);
  }
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

}  // namespace lastflop
