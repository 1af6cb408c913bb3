#include "spec/scalars.h"

#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/numbers.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

absl::Status Refuse(const YamlValue& value, absl::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat(Describe(value), " must be ", rule));
}

// The text of a number: quoted, it would be text.
absl::StatusOr<std::string> PlainText(const YamlValue& value, absl::string_view rule) {
  if (value.kind == YamlValue::Kind::kScalar && value.is_quoted) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(value), " is quoted, so it is text; it must be ", rule, ", without quotes"));
  }
  return ScalarText(value, rule);
}

// `because` is the number grammar's own reason.
absl::Status RefuseNumber(const YamlValue& value, absl::string_view rule,
                          const absl::Status& because) {
  return absl::InvalidArgumentError(
      absl::StrCat(because.message(), "; ", Describe(value), " must be ", rule));
}

struct Unit {
  absl::string_view suffix;
  double factor;
};

// "1.5h" as 1.5 times the factor of h.
absl::StatusOr<double> ParseWithUnit(const YamlValue& value, const std::vector<Unit>& units,
                                     absl::string_view rule) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, PlainText(value, rule));
  for (const Unit& unit : units) {
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit.suffix)) {
      continue;
    }
    const absl::StatusOr<double> amount = ParseNumber(number);
    if (!amount.ok() || !(*amount > 0) || !std::isfinite(*amount * unit.factor)) {
      return Refuse(value, rule);
    }
    return *amount * unit.factor;
  }
  return Refuse(value, rule);
}

}  // namespace

absl::StatusOr<std::string> ScalarText(const YamlValue& value, absl::string_view rule) {
  if (value.kind == YamlValue::Kind::kNull) {
    return absl::InvalidArgumentError(absl::StrCat("nothing stands here; it must be ", rule));
  }
  if (value.kind != YamlValue::Kind::kScalar) {
    return Refuse(value, rule);
  }
  return value.text;
}

absl::StatusOr<std::string> ParseText(const YamlValue& value) {
  LASTFLOP_ASSIGN_OR_RETURN(std::string text, ScalarText(value, "text"));
  if (text.empty()) {
    return Refuse(value, "text that is not empty");
  }
  return text;
}

absl::StatusOr<bool> ParseBool(const YamlValue& value) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, PlainText(value, "true or false"));
  if (text != "true" && text != "false") {
    return Refuse(value, "true or false");
  }
  return text == "true";
}

Parser<int64_t> IntegerIn(int64_t least, int64_t most) {
  return [least, most](const YamlValue& value) -> absl::StatusOr<int64_t> {
    const std::string rule =
        most == std::numeric_limits<int64_t>::max() ? absl::StrCat("an integer >= ", least)
        : most == least                             ? absl::StrCat(least)
                        : absl::StrCat("an integer from ", least, " to ", most);
    LASTFLOP_ASSIGN_OR_RETURN(const std::string text, PlainText(value, rule));
    const absl::StatusOr<int64_t> number = ParseInteger(text);
    if (!number.ok()) {
      return RefuseNumber(value, rule, number.status());
    }
    if (*number < least || *number > most) {
      return Refuse(value, rule);
    }
    return *number;
  };
}

bool NumberRange::Holds(double value) const {
  return (low_exclusive ? value > low : value >= low) &&
         (high_exclusive ? value < high : value <= high);
}

std::string NumberRange::Rule() const {
  std::string rule = "a number";
  if (std::isfinite(low)) {
    absl::StrAppend(&rule, low_exclusive ? " > " : " >= ", NumberText(low));
  }
  if (std::isfinite(high)) {
    absl::StrAppend(&rule, std::isfinite(low) ? " and" : "",
                    high_exclusive ? " < " : " <= ", NumberText(high));
  }
  return rule;
}

Parser<double> NumberIn(const NumberRange& range) {
  return [range](const YamlValue& value) -> absl::StatusOr<double> {
    LASTFLOP_ASSIGN_OR_RETURN(const std::string text, PlainText(value, range.Rule()));
    const absl::StatusOr<double> number = ParseNumber(text);
    if (!number.ok()) {
      return RefuseNumber(value, range.Rule(), number.status());
    }
    if (!range.Holds(*number)) {
      return Refuse(value, range.Rule());
    }
    return *number;
  };
}

Parser<double> FractionIn(const NumberRange& range) {
  return [range](const YamlValue& value) -> absl::StatusOr<double> {
    const std::string rule = absl::StrCat(range.Rule(), ", or in percent as 0.5%");
    LASTFLOP_ASSIGN_OR_RETURN(const std::string text, PlainText(value, rule));
    absl::string_view digits = text;
    const double scale = absl::ConsumeSuffix(&digits, "%") ? 0.01 : 1;
    const absl::StatusOr<double> number = ParseNumber(digits);
    if (!number.ok()) {
      return RefuseNumber(value, rule, number.status());
    }
    if (!range.Holds(*number * scale)) {
      return Refuse(value, rule);
    }
    return *number * scale;
  };
}

absl::StatusOr<std::chrono::milliseconds> ParseDuration(const YamlValue& value) {
  constexpr absl::string_view kRule = "a duration > 0 with its unit: 250ms, 3s, 6m or 1h";
  constexpr double kLongestMs = 365.0 * 24 * 3600 * 1000;
  LASTFLOP_ASSIGN_OR_RETURN(
      const double milliseconds,
      ParseWithUnit(value, {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}}, kRule));
  if (milliseconds < 1 || milliseconds > kLongestMs) {
    return Refuse(value, absl::StrCat(kRule, ", at least 1ms and at most a year"));
  }
  return std::chrono::milliseconds(std::llround(milliseconds));
}

absl::StatusOr<double> ParseEffortHours(const YamlValue& value) {
  constexpr double kMostHours = 1e7;  // 5,000 people for a year.
  const std::string rule =
      "working time > 0 with its unit: 30m, 1h, 2d (8 h a day) or 3w (5 d a week)";
  LASTFLOP_ASSIGN_OR_RETURN(
      const double hours,
      ParseWithUnit(value, {{"m", 1.0 / 60}, {"h", 1}, {"d", 8}, {"w", 40}}, rule));
  if (hours > kMostHours) {
    return Refuse(value, absl::StrCat(rule, ", at most ", kMostHours, " hours"));
  }
  return hours;
}

}  // namespace lastflop
