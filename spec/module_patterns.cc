#include "spec/module_patterns.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace lastflop {
namespace {

constexpr absl::string_view kPrefixes[] = {"model.", "", "language_model.model.",
                                           "model.language_model.", "language_model."};
constexpr size_t kMaxPattern = 1000;  // A longer expression could take its matcher's whole stack.

// "model.layers.*.mlp" as a regular expression, for the module and those inside it: "*.mlp.gate" is
// not "mlp.gate_proj".
std::string RegexOfGlob(absl::string_view glob) {
  std::string regex;
  for (const char c : glob) {
    if (c == '*') {
      regex += ".*";
    } else if (absl::string_view("\\^$.|?+()[]{}").find(c) != absl::string_view::npos) {
      regex += {'\\', c};
    } else {
      regex += c;
    }
  }
  return regex + "(\\..*)?$";
}

// Whether `part` stands in `name` between dots: "mlp.gate" in "layers.3.mlp.gate", and not in
// "layers.3.mlp.gate_proj".
bool HasPart(absl::string_view name, absl::string_view part) {
  for (size_t at = name.find(part); at != absl::string_view::npos; at = name.find(part, at + 1)) {
    const size_t end = at + part.size();
    if ((at == 0 || name[at - 1] == '.') && (end == name.size() || name[end] == '.')) {
      return true;
    }
  }
  return false;
}

}  // namespace

absl::Status ModulePatterns::Add(absl::string_view pattern) {
  const bool is_regex = absl::ConsumePrefix(&pattern, "re:");
  if (!is_regex && pattern.find('*') == absl::string_view::npos) {
    if (!pattern.empty()) {
      names_.insert(std::string(pattern));
    }
    return absl::OkStatus();
  }
  if (pattern.size() > kMaxPattern) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pattern of ", pattern.size(), " characters: at most ", kMaxPattern));
  }
  try {
    regexes_.emplace_back(is_regex ? std::string(pattern) : RegexOfGlob(pattern),
                          std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error& error) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", pattern, "\" is no regular expression: ", error.what()));
  }
  return absl::OkStatus();
}

bool ModulePatterns::Matches(absl::string_view module) const {
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes), [&](absl::string_view prefix) {
    return MatchesName(absl::StrCat(prefix, module));
  });
}

bool ModulePatterns::MatchesName(const std::string& name) const {
  // An exact name is the common case of lists with thousands of entries.
  if (names_.count(name) > 0) {
    return true;
  }
  if (std::any_of(names_.begin(), names_.end(),
                  [&](const std::string& part) { return HasPart(name, part); })) {
    return true;
  }
  return std::any_of(regexes_.begin(), regexes_.end(), [&](const std::regex& regex) {
    return std::regex_search(name, regex, std::regex_constants::match_continuous);
  });
}

}  // namespace lastflop
