#include "spec/routing_trace.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/numbers.h"
#include "common/status_macros.h"
#include "spec/diagnostics.h"
#include "spec/scalars.h"
#include "spec/text_file.h"
#include "spec/yaml_parser.h"

namespace lastflop {
namespace {

using Popularity = std::vector<std::vector<double>>;

constexpr size_t kMaxBytes = 16 << 20;
constexpr int64_t kMostLayers = 10'000;
constexpr int64_t kMostExperts = 100'000;
constexpr size_t kMostCounts = 500'000;  // Of all layers.
constexpr absl::string_view kHeader = "layer,expert,count";

// JSON is YAML but for tabs, which carry no meaning in it outside of text, and this has no text.
Popularity ReadJson(absl::string_view text, Diagnostics& diagnostics) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '\t', ' ');
  const YamlLimits limits{.bytes = kMaxBytes, .nodes = kMostCounts, .depth = 3};
  const YamlValue root = ParseYaml(spaced, diagnostics, limits);
  Popularity popularity;
  if (diagnostics.ok() && root.kind != YamlValue::Kind::kList) {
    diagnostics.Error(root.location, "", "a trace is a list of layers, each a list of counts");
  }
  for (size_t layer = 0; layer < root.items.size(); ++layer) {
    const YamlValue& row = root.items[layer];
    if (row.kind != YamlValue::Kind::kList) {
      diagnostics.Error(row.location, absl::StrCat("[", layer, "]"),
                        absl::StrCat(Describe(row), " must be a list of counts"));
      return {};
    }
    std::vector<double> counts;
    for (size_t expert = 0; expert < row.items.size(); ++expert) {
      const auto count = NumberIn(kNotNegative)(row.items[expert]);
      if (!count.ok()) {
        diagnostics.Error(row.items[expert].location, absl::StrCat("[", layer, "][", expert, "]"),
                          count.status().message());
        return {};
      }
      counts.push_back(*count);
    }
    popularity.push_back(std::move(counts));
  }
  return popularity;
}

// One row of the CSV; false: reported.
bool ReadRow(absl::string_view line, int line_number, Popularity& popularity,
             Diagnostics& diagnostics) {
  const Location location{.line = line_number};
  const std::vector<absl::string_view> cells = absl::StrSplit(line, ',');
  if (cells.size() != 3) {
    diagnostics.Error(location, "", absl::StrCat("\"", line, "\" must be ", kHeader));
    return false;
  }
  const auto layer = ParseInteger(absl::StripAsciiWhitespace(cells[0]));
  const auto expert = ParseInteger(absl::StripAsciiWhitespace(cells[1]));
  const auto count = ParseNumber(absl::StripAsciiWhitespace(cells[2]));
  if (!layer.ok() || *layer < 0 || *layer >= kMostLayers || !expert.ok() || *expert < 0 ||
      *expert >= kMostExperts || !count.ok() || *count < 0) {
    diagnostics.Error(location, "",
                      absl::StrCat("\"", line,
                                   "\" must be a layer and an expert from 0 on and a "
                                   "count >= 0"));
    return false;
  }
  const auto layer_index = static_cast<size_t>(*layer);
  const auto expert_index = static_cast<size_t>(*expert);
  popularity.resize(std::max(popularity.size(), layer_index + 1));
  std::vector<double>& counts = popularity[layer_index];
  constexpr double kUnset = -1;
  counts.resize(std::max(counts.size(), expert_index + 1), kUnset);
  if (counts[expert_index] != kUnset) {
    diagnostics.Error(location, "", absl::StrCat("\"", line, "\": this pair is here twice"));
    return false;
  }
  counts[expert_index] = *count;
  return true;
}

Popularity ReadCsv(absl::string_view text, Diagnostics& diagnostics) {
  absl::ConsumePrefix(&text, "\xef\xbb\xbf");
  Popularity popularity;
  int line_number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++line_number;
    absl::ConsumeSuffix(&line, "\r");
    if (line_number == 1) {
      if (line != kHeader) {
        diagnostics.Error({}, "", absl::StrCat("the first line must be ", kHeader));
        return {};
      }
    } else if (!line.empty() && !ReadRow(line, line_number, popularity, diagnostics)) {
      return {};
    }
  }
  // Pairs that are not there count 0, and the shorter layers have the others' experts too.
  size_t num_experts = 0;
  for (const std::vector<double>& counts : popularity) {
    num_experts = std::max(num_experts, counts.size());
  }
  if (popularity.size() * num_experts > kMostCounts) {
    diagnostics.Error({}, "",
                      absl::StrCat(popularity.size(), " layers of ", num_experts,
                                   " experts are more than ", kMostCounts, " counts"));
    return {};
  }
  for (std::vector<double>& counts : popularity) {
    counts.resize(num_experts, 0);
    std::replace_if(
        counts.begin(), counts.end(), [](double count) { return count < 0; }, 0.0);
  }
  return popularity;
}

void CheckLayers(const Popularity& popularity, Diagnostics& diagnostics) {
  if (popularity.empty()) {
    diagnostics.Error({}, "", "the trace has no layer");
  }
  for (size_t layer = 0; layer < popularity.size(); ++layer) {
    const std::vector<double>& counts = popularity[layer];
    const std::string path = absl::StrCat("[", layer, "]");
    if (counts.size() != popularity[0].size()) {
      diagnostics.Error(
          {}, path,
          absl::StrCat("has ", counts.size(), " experts, layer 0 has ", popularity[0].size()));
    } else if (!(std::accumulate(counts.begin(), counts.end(), 0.0) > 0)) {
      diagnostics.Error({}, path, "no expert of this layer was ever chosen");
    }
  }
}

}  // namespace

absl::StatusOr<Popularity> ReadRoutingTrace(absl::string_view text, const std::string& file_name) {
  Diagnostics diagnostics(file_name);
  const Popularity popularity =
      absl::EndsWith(file_name, ".json") ? ReadJson(text, diagnostics) : ReadCsv(text, diagnostics);
  if (diagnostics.ok()) {
    CheckLayers(popularity, diagnostics);
  }
  LASTFLOP_RETURN_IF_ERROR(diagnostics.ToStatus());
  return popularity;
}

absl::StatusOr<Popularity> ReadRoutingTraceFile(const std::string& path) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxBytes));
  return ReadRoutingTrace(text, path);
}

}  // namespace lastflop
