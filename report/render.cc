#include "report/render.h"

#include <cctype>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace lastflop {

std::string Render(const Ranking& ranking, ReportFormat format, const RenderOptions& options) {
  switch (format) {
    case ReportFormat::kTable:
      return RenderTable(ranking, options.color, options.width);
    case ReportFormat::kJson:
      return RenderJson(ranking);
    case ReportFormat::kCsv:
      return RenderCsv(ranking);
    case ReportFormat::kMarkdown:
      return RenderMarkdown(ranking);
    case ReportFormat::kHtml:
      return RenderHtml(ranking, options.vega_script);
  }
  return "";
}

namespace {

std::string SafeText(absl::string_view name, size_t most_characters) {
  std::string safe;
  for (const char c : name) {
    const bool is_kept =
        absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
    if (is_kept) {
      safe.push_back(c);
    } else if (!safe.empty() && safe.back() != '-') {
      safe.push_back('-');
    }
    if (safe.size() == most_characters) {
      break;
    }
  }
  // A leading dot hides a file, a leading dash reads as a flag.
  safe.erase(0, safe.find_first_not_of(".-"));
  safe.erase(safe.find_last_not_of(".-") + 1);
  return safe.empty() ? "campaign" : safe;
}

}  // namespace

std::string SafeFileName(absl::string_view name, absl::string_view id) {
  constexpr size_t kMostCharacters = 80;
  constexpr size_t kMostOfId = 40;
  std::string safe = SafeText(name, kMostCharacters);
  if (id.empty() || safe == name) {
    return safe;
  }
  const std::string end = absl::StrCat("-", SafeText(id, kMostOfId));
  return absl::StrCat(SafeText(name, kMostCharacters - end.size()), end);
}

}  // namespace lastflop
