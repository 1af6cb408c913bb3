#include "common/numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

// Digits before a "." or exponent, without sign.
absl::string_view WholePart(absl::string_view text) {
  if (!text.empty() && text.front() == '-') {
    text.remove_prefix(1);
  }
  size_t num_digits = 0;
  while (num_digits < text.size() &&
         absl::ascii_isdigit(static_cast<unsigned char>(text[num_digits]))) {
    ++num_digits;
  }
  return text.substr(0, num_digits);
}

bool HasLeadingZero(absl::string_view text) {
  const absl::string_view whole = WholePart(text);
  return whole.size() > 1 && whole.front() == '0';
}

}  // namespace

absl::StatusOr<int64_t> ParseInteger(absl::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is beyond 64 bits"));
  }
  if (error != std::errc() || stop != end) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not a whole number in plain decimal digits"));
  }
  if (HasLeadingZero(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" has a leading zero, which some readers take for octal"));
  }
  return value;
}

absl::StatusOr<double> ParseNumber(absl::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value) || WholePart(text).empty()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not a finite number"));
  }
  if (HasLeadingZero(text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" has a leading zero, which some readers take for octal"));
  }
  return value == 0 ? 0.0 : value;  // One zero: -0 has no meaning here and another text.
}

std::string NumberText(double value) {
  std::array<char, 32> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return error == std::errc() ? std::string(buffer.data(), end) : "nan";
}

}  // namespace lastflop
