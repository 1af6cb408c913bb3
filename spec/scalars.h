#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/suggest.h"
#include "common/words.h"
#include "spec/yaml_value.h"

// One YAML scalar to one typed value. InvalidArgument says the value and the rule; where it stands
// is added by MapReader.
namespace lastflop {

template <typename T>
using Parser = std::function<absl::StatusOr<T>(const YamlValue&)>;

// The value's text; refuses lists, maps and nothing.
absl::StatusOr<std::string> ScalarText(const YamlValue& value, absl::string_view rule);

// Text that is not empty, quoted or not: `name: no` is the text "no".
absl::StatusOr<std::string> ParseText(const YamlValue& value);

// true or false, as words; yes, on and 1 are refused.
absl::StatusOr<bool> ParseBool(const YamlValue& value);

// A whole number of `least` to `most`, see common/numbers.h for how it is written.
Parser<int64_t> IntegerIn(int64_t least, int64_t most = std::numeric_limits<int64_t>::max());

// Bounds of a number; an exclusive bound is not itself accepted.
struct NumberRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_exclusive = false;
  bool high_exclusive = false;

  bool Holds(double value) const;
  std::string Rule() const;  // "a number > 0 and <= 1"
};
inline constexpr NumberRange kPositive{.low = 0, .low_exclusive = true};
inline constexpr NumberRange kNotNegative{.low = 0};

Parser<double> NumberIn(const NumberRange& range);

// A number, or a percentage: 0.5% is 0.005. The range is that of the number.
Parser<double> FractionIn(const NumberRange& range);

// A positive duration with its unit: 250ms, 3s, 6m, 1.5h.
absl::StatusOr<std::chrono::milliseconds> ParseDuration(const YamlValue& value);

// Positive working time in hours: 30m, 1h, 2d (8 h a day), 3w (5 d a week).
absl::StatusOr<double> ParseEffortHours(const YamlValue& value);

// A word of an enum.
template <typename E>
absl::StatusOr<E> ParseWord(const YamlValue& value) {
  const std::string rule = absl::StrCat("one of ", AllWords<E>());
  absl::StatusOr<std::string> text = ScalarText(value, rule);
  if (!text.ok()) {
    return text.status();
  }
  if (const std::optional<E> word = FromWord<E>(*text)) {
    return *word;
  }
  std::vector<absl::string_view> words;
  for (const auto& [candidate, word] : EnumWords<E>::kWords) {
    words.push_back(word);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(value), " must be ", rule, DidYouMean(*text, words)));
}

}  // namespace lastflop
