#include "spec/diagnostics.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/one_line.h"

namespace lastflop {
namespace {

constexpr size_t kMostErrors = 50;  // Shown; a file with more has one cause.

}  // namespace

Diagnostics::Diagnostics(std::string file_name, std::vector<std::string> overrides)
    : file_name_(std::move(file_name)), overrides_(std::move(overrides)) {}

void Diagnostics::Error(const Location& location, absl::string_view path,
                        absl::string_view message) {
  const std::string file =
      location.override_index < 0
          ? file_name_
          : absl::StrCat("--set ", overrides_[static_cast<size_t>(location.override_index)]);
  const std::string text = absl::StrCat(file, ":", location.line, ":", location.column, ": ",
                                        path.empty() ? "(file)" : path, ": ", message);
  errors_.push_back({location, OneLine(text), OneLine(message)});
}

void Diagnostics::Nested(const Location& location, absl::string_view path,
                         const absl::Status& status) {
  for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
    Error(location, path, line);
  }
}

void Diagnostics::Cause(const Location& location, absl::string_view path,
                        absl::string_view message) {
  errors_.clear();
  Error(location, path, message);
}

const std::string& Diagnostics::FirstMessage() const {
  return std::min_element(errors_.begin(), errors_.end(), ComesBefore)->message;
}

bool Diagnostics::ComesBefore(const Entry& a, const Entry& b) {
  return std::tie(a.location.override_index, a.location.line, a.location.column) <
         std::tie(b.location.override_index, b.location.line, b.location.column);
}

absl::Status Diagnostics::ToStatus() const {
  if (errors_.empty()) {
    return absl::OkStatus();
  }
  std::vector<Entry> sorted = errors_;
  std::stable_sort(sorted.begin(), sorted.end(), ComesBefore);
  std::vector<std::string> lines;
  for (const Entry& entry : sorted) {
    if (lines.size() == kMostErrors) {
      lines.push_back(absl::StrCat(file_name_, ":", entry.location.line, ":", entry.location.column,
                                   ": (file): and ", sorted.size() - kMostErrors,
                                   " more errors from here on"));
      break;
    }
    // The same mistake seen from two places is one.
    if (lines.empty() || lines.back() != entry.text) {
      lines.push_back(entry.text);
    }
  }
  return absl::InvalidArgumentError(absl::StrJoin(lines, "\n"));
}

std::string JoinPath(absl::string_view parent, absl::string_view key) {
  return parent.empty() ? std::string(key) : absl::StrCat(parent, ".", key);
}

std::string IndexPath(absl::string_view parent, size_t index) {
  return absl::StrCat(parent, "[", index, "]");
}

}  // namespace lastflop
