#include "spec/override.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "spec/yaml_parser.h"

namespace lastflop {
namespace {

using Steps = std::span<const std::string>;

// "points[2].batch" -> points, 2, batch.
std::vector<std::string> SplitPath(absl::string_view path) {
  const std::string dotted = absl::StrReplaceAll(path, {{"[", "."}, {"]", ""}});
  return absl::StrSplit(dotted, '.');
}

// Moves every place of `value` into the override.
void Relocate(int override_index, int column_offset, YamlValue& value) {
  const auto move = [&](Location& location) {
    location.override_index = override_index;
    location.column += column_offset;
  };
  move(value.location);
  for (YamlValue& item : value.items) {
    Relocate(override_index, column_offset, item);
  }
  for (YamlEntry& entry : value.entries) {
    move(entry.location);
    Relocate(override_index, column_offset, entry.value);
  }
}

// One override on its way into the tree.
class Override {
 public:
  Override(std::string path, YamlValue value, Location location, Diagnostics& diagnostics)
      : path_(std::move(path)),
        value_(std::move(value)),
        location_(location),
        diagnostics_(diagnostics) {}

  void Apply(YamlValue& root) {
    const std::vector<std::string> steps = SplitPath(path_);
    if (std::find(steps.begin(), steps.end(), "") != steps.end()) {
      return Error("the path has an empty part");
    }
    Descend(root, steps);
  }

 private:
  void Error(absl::string_view message) { diagnostics_.Error(location_, path_, message); }

  void Descend(YamlValue& node, Steps steps) {
    if (steps.empty()) {
      node = value_;
    } else if (node.kind == YamlValue::Kind::kList) {
      DescendList(node, steps);
    } else if (node.kind == YamlValue::Kind::kMap || node.kind == YamlValue::Kind::kNull) {
      node.kind = YamlValue::Kind::kMap;
      DescendMap(node, steps);
    } else {
      Error(absl::StrCat(Describe(node), " stands where \"", absl::StrJoin(steps, "."),
                         "\" would need a map"));
    }
  }

  // Keys of plan fields may be dotted, so a key can stand for several steps: the entry that leads
  // furthest is taken.
  void DescendMap(YamlValue& map, Steps steps) {
    YamlEntry* best = nullptr;
    size_t best_length = 0;
    for (YamlEntry& entry : map.entries) {
      const std::vector<std::string> key = absl::StrSplit(entry.key, '.');
      const bool is_prefix =
          key.size() <= steps.size() && std::equal(key.begin(), key.end(), steps.begin());
      const size_t length =
          is_prefix ? key.size() + Match(entry.value, steps.subspan(key.size())) : 0;
      if (length > best_length) {
        best = &entry;
        best_length = length;
      }
    }
    if (best != nullptr) {
      const size_t num_steps =
          static_cast<size_t>(1 + std::count(best->key.begin(), best->key.end(), '.'));
      return Descend(best->value, steps.subspan(num_steps));
    }
    YamlEntry entry{.key = steps.front(), .location = location_, .value = {}};
    entry.value.location = location_;
    map.entries.push_back(std::move(entry));
    Descend(map.entries.back().value, steps.subspan(1));
  }

  // How many of the steps are there already.
  static size_t Match(const YamlValue& node, Steps steps) {
    size_t longest = 0;
    for (const YamlEntry& entry : node.entries) {
      const std::vector<std::string> key = absl::StrSplit(entry.key, '.');
      if (key.size() <= steps.size() && std::equal(key.begin(), key.end(), steps.begin())) {
        longest = std::max(longest, key.size() + Match(entry.value, steps.subspan(key.size())));
      }
    }
    return longest;
  }

  void DescendList(YamlValue& list, Steps steps) {
    size_t index = list.items.size();
    if (!absl::SimpleAtoi(steps.front(), &index)) {
      index = list.items.size();
      for (size_t i = 0; i < list.items.size(); ++i) {
        const YamlValue* id = list.items[i].Find("id");
        if (id != nullptr && id->text == steps.front()) {
          index = i;
        }
      }
    }
    if (index >= list.items.size()) {
      return Error(absl::StrCat("\"", steps.front(), "\" is neither an index below ",
                                list.items.size(), " nor an id in the list"));
    }
    Descend(list.items[index], steps.subspan(1));
  }

  const std::string path_;
  const YamlValue value_;
  const Location location_;
  Diagnostics& diagnostics_;  // Outlives this.
};

// The value of "path=value" as YAML. nullopt: reported.
std::optional<YamlValue> ParseValue(absl::string_view text, const std::string& path,
                                    const Location& location, Diagnostics& diagnostics) {
  if (absl::StripAsciiWhitespace(text).empty()) {
    YamlValue empty;
    empty.kind = YamlValue::Kind::kScalar;
    empty.is_quoted = true;
    empty.location = location;
    return empty;
  }
  Diagnostics errors("value");
  YamlValue value = ParseYaml(text, errors);
  if (!errors.ok()) {
    diagnostics.Error(location, path, absl::StrCat("is no YAML: ", errors.FirstMessage()));
    return std::nullopt;
  }
  Relocate(location.override_index, location.column - 1, value);
  return value;
}

}  // namespace

void ApplyOverrides(const std::vector<std::string>& overrides, YamlValue& root,
                    Diagnostics& diagnostics) {
  for (size_t i = 0; i < overrides.size(); ++i) {
    const std::string& text = overrides[i];
    const size_t equals = text.find('=');
    Location location{.override_index = static_cast<int>(i)};
    if (equals == std::string::npos || equals == 0) {
      diagnostics.Error(location, "", absl::StrCat("\"", text, "\" must be path=value"));
      continue;
    }
    const std::string path = text.substr(0, equals);
    location.column = static_cast<int>(equals) + 2;
    const absl::string_view value_text = absl::string_view(text).substr(equals + 1);
    if (std::optional<YamlValue> value = ParseValue(value_text, path, location, diagnostics)) {
      location.column = 1;
      Override(path, *std::move(value), location, diagnostics).Apply(root);
    }
  }
}

}  // namespace lastflop
