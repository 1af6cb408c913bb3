#include "common/plan.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/hash.h"
#include "common/status_macros.h"
#include "common/suggest.h"

namespace lastflop {
namespace {

// A value is one line of the canonical text, whatever it contains.
std::string Escape(absl::string_view value) {
  return absl::StrReplaceAll(value, {{"\\", "\\\\"}, {"\n", "\\n"}});
}

absl::StatusOr<std::string> Unescape(absl::string_view text) {
  std::string value;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      value += text[i];
      continue;
    }
    ++i;
    if (i == text.size() || (text[i] != '\\' && text[i] != 'n')) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan text \"", text, "\": a backslash is followed by n or a backslash"));
    }
    value += text[i] == 'n' ? '\n' : '\\';
  }
  return value;
}

const PlanField* FindField(absl::string_view path) {
  for (const PlanField& field : PlanFields()) {
    if (field.path == path) {
      return &field;
    }
  }
  return nullptr;
}

}  // namespace

absl::Status SetPlanField(absl::string_view path, absl::string_view text, Plan& plan) {
  const PlanField* field = FindField(path);
  if (field == nullptr) {
    std::vector<absl::string_view> paths;
    for (const PlanField& known : PlanFields()) {
      paths.push_back(known.path);
    }
    return absl::NotFoundError(
        absl::StrCat("\"", path, "\" is no plan field", DidYouMean(path, paths)));
  }
  const absl::Status status = field->set(text, plan);
  if (status.ok()) {
    return status;
  }
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
}

std::string CanonicalText(const Plan& plan) {
  std::string text;
  for (const PlanField& field : PlanFields()) {
    absl::StrAppend(&text, field.path, "=", Escape(field.get(plan)), "\n");
  }
  return text;
}

absl::StatusOr<Plan> ParseCanonicalText(absl::string_view text) {
  Plan plan;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const size_t equals = line.find('=');
    if (equals == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan text \"", line, "\": a line is path=value"));
    }
    LASTFLOP_ASSIGN_OR_RETURN(const std::string value, Unescape(line.substr(equals + 1)));
    LASTFLOP_RETURN_IF_ERROR(SetPlanField(line.substr(0, equals), value, plan));
  }
  return plan;
}

std::string PlanHash(const Plan& plan) {
  return absl::StrFormat("%016x", StableHash(CanonicalText(plan)));
}

std::vector<PlanDifference> DiffPlans(const Plan& from, const Plan& to) {
  std::vector<PlanDifference> differences;
  for (const PlanField& field : PlanFields()) {
    if (field.is_same(from, to)) {
      continue;
    }
    std::string from_text = field.get(from);
    std::string to_text = field.get(to);
    if (from_text != to_text) {
      differences.push_back({.path = std::string(field.path),
                             .from = std::move(from_text),
                             .to = std::move(to_text)});
    }
  }
  return differences;
}

}  // namespace lastflop
