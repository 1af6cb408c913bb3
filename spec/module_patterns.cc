#include "spec/module_patterns.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace lastflop {
namespace {

constexpr absl::string_view kPrefixes[] = {"model.", "", "language_model.model.",
                                           "model.language_model.", "language_model."};
constexpr size_t kMaxPattern = 1000;
constexpr int64_t kMaxMatcherBytes = 1 << 20;  // Of one expression: "(a{100}){100}" is refused.

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
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMaxMatcherBytes);
  auto regex =
      std::make_unique<RE2>(is_regex ? std::string(pattern) : RegexOfGlob(pattern), options);
  if (!regex->ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", pattern, "\" is no regular expression that lastflop reads: ", regex->error()));
  }
  regexes_.push_back(std::move(regex));
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
  return std::any_of(regexes_.begin(), regexes_.end(), [&](const std::unique_ptr<RE2>& regex) {
    return regex->Match(name, 0, name.size(), RE2::ANCHOR_START, nullptr, 0);
  });
}

}  // namespace lastflop
