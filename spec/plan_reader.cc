#include "spec/plan_reader.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "spec/scalars.h"

namespace lastflop {
namespace {

constexpr absl::string_view kEnvironmentField = "process.env";

// A map form of a field whose text is WORD:NUMBER.
struct NumberedWord {
  absl::string_view path;    // As YAML nests it.
  absl::string_view field;   // As PlanFields() calls it.
  absl::string_view prefix;  // Of its text.
};
constexpr std::array<NumberedWord, 2> kNumberedWords = {{
    {"moe.expert_activation.opportunistic.keep", "moe.expert_activation", "opportunistic:"},
    {"overlap.single_batch.sms", "overlap", "single_batch:"},
}};

// Groups of fields that `none` switches off as a whole.
constexpr std::array<absl::string_view, 4> kSwitchable = {"moe.l2_pin", "decode.speculative",
                                                          "collectives.nccl", "engine"};

const PlanField* FindField(absl::string_view path) {
  for (const PlanField& field : PlanFields()) {
    if (field.path == path) {
      return &field;
    }
  }
  return nullptr;
}

const NumberedWord* FindNumberedWord(absl::string_view path) {
  for (const NumberedWord& word : kNumberedWords) {
    if (word.path == path) {
      return &word;
    }
  }
  return nullptr;
}

std::vector<absl::string_view> KnownPaths() {
  std::vector<absl::string_view> paths;
  for (const PlanField& field : PlanFields()) {
    paths.push_back(field.path);
  }
  for (const NumberedWord& word : kNumberedWords) {
    paths.push_back(word.path);
  }
  return paths;
}

// Everything that a key may lead to: fields and the groups around them.
std::vector<absl::string_view> PathsAndGroups() {
  std::set<absl::string_view> paths;
  for (absl::string_view path : KnownPaths()) {
    for (; !path.empty(); path = path.substr(0, path.rfind('.'))) {
      paths.insert(path);
      if (!absl::StrContains(path, ".")) {
        break;
      }
    }
  }
  return {paths.begin(), paths.end()};
}

// Whether a map at `path` has anything under it.
bool IsGroup(absl::string_view path) {
  for (const absl::string_view known : KnownPaths()) {
    if (absl::StartsWith(known, absl::StrCat(path, "."))) {
      return true;
    }
  }
  return false;
}

bool IsSwitchable(absl::string_view path) {
  return std::find(kSwitchable.begin(), kSwitchable.end(), path) != kSwitchable.end();
}

// The canonical text of `text` in that field, or why it has none.
absl::StatusOr<FieldSetting> Canonical(const PlanField& field, absl::string_view text) {
  Plan scratch;
  const absl::Status status = field.set(text, scratch);
  if (!status.ok()) {
    // Grammar errors ("08") do not say what the field takes, the others do.
    const bool has_rule = absl::StrContains(status.message(), " must be ");
    return absl::InvalidArgumentError(
        has_rule ? std::string(status.message())
                 : absl::StrCat(status.message(), "; ", field.path, " takes ", field.values));
  }
  return FieldSetting{.path = std::string(field.path), .value = field.get(scratch)};
}

absl::StatusOr<FieldSetting> ReadEnvironment(const PlanField& field, const YamlValue& value,
                                             const Plan& base) {
  if (value.kind != YamlValue::Kind::kMap) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(value), " must be ", field.values));
  }
  Plan scratch;
  scratch.process_env = base.process_env;
  for (const YamlEntry& entry : value.entries) {
    if (absl::StrContains(entry.key, "=")) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", entry.key, "\" is no name of a variable: it has a ="));
    }
    if (entry.value.kind == YamlValue::Kind::kNull) {
      scratch.process_env.erase(entry.key);
      continue;
    }
    LASTFLOP_ASSIGN_OR_RETURN(scratch.process_env[entry.key], ScalarText(entry.value, "text"));
  }
  return FieldSetting{.path = std::string(field.path), .value = field.get(scratch)};
}

bool TakesPlainValues(const PlanField& field) {
  return absl::StartsWith(field.values, "an integer") ||
         absl::StartsWith(field.values, "a number") || field.values == "true or false";
}

// One value of the field or numbered word at `path`.
absl::StatusOr<FieldSetting> ReadLeaf(absl::string_view path, const YamlValue& value,
                                      const Plan& base) {
  if (const NumberedWord* word = FindNumberedWord(path)) {
    const PlanField& field = *FindField(word->field);
    LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ScalarText(value, "an integer"));
    return Canonical(field, absl::StrCat(word->prefix, text));
  }
  const PlanField& field = *FindField(path);
  if (path == kEnvironmentField) {
    return ReadEnvironment(field, value, base);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ScalarText(value, field.values));
  if (value.is_quoted && TakesPlainValues(field)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(value), " is quoted, so it is text; ",
                                                   field.path, " takes ", field.values));
  }
  return Canonical(field, text);
}

// Every field of a group at its default: what `none` means there.
std::vector<FieldSetting> SwitchOff(absl::string_view group) {
  std::vector<FieldSetting> settings;
  for (const PlanField& field : PlanFields()) {
    if (absl::StartsWith(field.path, absl::StrCat(group, "."))) {
      settings.push_back({.path = std::string(field.path), .value = field.get(Plan{})});
    }
  }
  return settings;
}

// A place in a map of plan fields that has a value of its own.
struct Leaf {
  std::string field_path;  // "moe.l2_pin", a field, a group or a numbered word.
  std::string path;        // In the file.
  Location location;
  const YamlValue* value;
};

// What Walk stops at, and what it says when something else stands there.
struct LeafRule {
  bool (*is_leaf)(const std::string& field_path, const YamlValue& value);
  std::string (*expected)(const std::string& field_path);
};

// Walks down to the leaves; everything else must be a known group.
void Walk(const YamlValue& map, const std::string& field_prefix, const std::string& path_prefix,
          const LeafRule& rule, Diagnostics& diagnostics, std::vector<Leaf>& leaves) {
  for (const YamlEntry& entry : map.entries) {
    const std::string field_path = JoinPath(field_prefix, entry.key);
    const std::string path = JoinPath(path_prefix, entry.key);
    const bool is_known = FindField(field_path) != nullptr ||
                          FindNumberedWord(field_path) != nullptr || IsGroup(field_path);
    if (!is_known) {
      diagnostics.Error(entry.location, path,
                        absl::StrCat("\"", field_path, "\" is no plan field",
                                     DidYouMean(field_path, PathsAndGroups())));
    } else if (entry.value.kind == YamlValue::Kind::kNull) {
      diagnostics.Error(entry.value.location, path, "the key has no value; write one or drop it");
    } else if (rule.is_leaf(field_path, entry.value)) {
      leaves.push_back({field_path, path, entry.location, &entry.value});
    } else if (entry.value.kind == YamlValue::Kind::kMap && !entry.value.entries.empty() &&
               IsGroup(field_path)) {
      Walk(entry.value, field_path, path, rule, diagnostics, leaves);
    } else {
      diagnostics.Error(
          entry.value.location, path,
          absl::StrCat(Describe(entry.value), " must be ", rule.expected(field_path)));
    }
  }
}

absl::StatusOr<std::vector<FieldSetting>> ReadSettings(const std::string& field_path,
                                                       const YamlValue& value, const Plan& base) {
  if (FindField(field_path) == nullptr && FindNumberedWord(field_path) == nullptr) {
    return SwitchOff(field_path);
  }
  LASTFLOP_ASSIGN_OR_RETURN(FieldSetting setting, ReadLeaf(field_path, value, base));
  return std::vector<FieldSetting>{std::move(setting)};
}

bool IsSwitchOff(const std::string& field_path, const YamlValue& value) {
  return IsSwitchable(field_path) && value.kind == YamlValue::Kind::kScalar && value.text == "none";
}

bool IsSettingLeaf(const std::string& field_path, const YamlValue& value) {
  const bool is_nested = value.kind == YamlValue::Kind::kMap && IsGroup(field_path);
  const bool has_value =
      FindField(field_path) != nullptr || FindNumberedWord(field_path) != nullptr;
  return (has_value && !is_nested) || IsSwitchOff(field_path, value);
}

std::string ExpectedSetting(const std::string& field_path) {
  const PlanField* field = FindField(field_path);
  return absl::StrCat(field != nullptr ? field->values : "a map of plan fields, at least one",
                      IsSwitchable(field_path) ? ", or none" : "");
}

bool IsSweepLeaf(const std::string& /*field_path*/, const YamlValue& value) {
  return value.kind == YamlValue::Kind::kList && !value.items.empty();
}

std::string ExpectedSweep(const std::string& field_path) {
  return absl::StrCat("a list of values to try",
                      IsGroup(field_path) ? ", or a map of plan fields to lists" : "");
}

constexpr LeafRule kSettingRule = {&IsSettingLeaf, &ExpectedSetting};
constexpr LeafRule kSweepRule = {&IsSweepLeaf, &ExpectedSweep};

// Reports a field that the map has set before, in whatever spelling.
bool IsNew(const std::string& field, const Leaf& leaf, std::map<std::string, int>& lines,
           Diagnostics& diagnostics) {
  const auto [first, is_new] = lines.emplace(field, leaf.location.line);
  if (!is_new) {
    diagnostics.Error(
        leaf.location, leaf.path,
        absl::StrCat(field, " is set twice; the first one is on line ", first->second));
  }
  return is_new;
}

// The settings of a map whose keys are below `field_prefix`.
std::vector<SettingSource> ReadGroup(const YamlValue& map, const std::string& field_prefix,
                                     const std::string& path, const Plan& base,
                                     Diagnostics& diagnostics) {
  std::vector<Leaf> leaves;
  Walk(map, field_prefix, path, kSettingRule, diagnostics, leaves);
  std::vector<SettingSource> sources;
  std::map<std::string, int> lines;
  for (const Leaf& leaf : leaves) {
    const auto settings = ReadSettings(leaf.field_path, *leaf.value, base);
    if (!settings.ok()) {
      diagnostics.Error(leaf.value->location, leaf.path, settings.status().message());
      continue;
    }
    for (const FieldSetting& setting : *settings) {
      if (IsNew(setting.path, leaf, lines, diagnostics)) {
        sources.push_back({setting, leaf.location, leaf.path});
      }
    }
  }
  return sources;
}

// One value of a sweep: a scalar, or the map form of the same field. nullopt: reported.
std::optional<FieldSetting> ReadSweepValue(const Leaf& leaf, const YamlValue& value,
                                           const std::string& path, const Plan& base,
                                           Diagnostics& diagnostics) {
  if (value.kind == YamlValue::Kind::kMap && !IsSettingLeaf(leaf.field_path, value)) {
    const auto sources = ReadGroup(value, leaf.field_path, path, base, diagnostics);
    if (sources.size() == 1) {
      return sources[0].setting;
    }
    diagnostics.Error(value.location, path,
                      absl::StrCat(Describe(value), " sets ", sources.size(),
                                   " plan fields; a value to try sets one"));
    return std::nullopt;
  }
  if (!IsSettingLeaf(leaf.field_path, value) || IsSwitchOff(leaf.field_path, value)) {
    diagnostics.Error(value.location, path,
                      absl::StrCat(Describe(value), " is no value of a single plan field; ",
                                   "name the field by its whole path"));
    return std::nullopt;
  }
  const absl::StatusOr<FieldSetting> setting = ReadLeaf(leaf.field_path, value, base);
  if (!setting.ok()) {
    diagnostics.Error(value.location, path, setting.status().message());
    return std::nullopt;
  }
  return *setting;
}

std::optional<SweepSource> ReadSweep(const Leaf& leaf, const Plan& base, Diagnostics& diagnostics) {
  SweepSource sweep{.field = "", .values = {}, .location = leaf.location, .path = leaf.path};
  for (size_t i = 0; i < leaf.value->items.size(); ++i) {
    const YamlValue& item = leaf.value->items[i];
    const std::string path = IndexPath(leaf.path, i);
    const std::optional<FieldSetting> setting = ReadSweepValue(leaf, item, path, base, diagnostics);
    if (!setting.has_value()) {
      return std::nullopt;
    }
    std::string message;
    if (!sweep.field.empty() && setting->path != sweep.field) {
      message = absl::StrCat(Describe(item), " sets ", setting->path, ", the values before it ",
                             sweep.field);
    } else if (std::find(sweep.values.begin(), sweep.values.end(), setting->value) !=
               sweep.values.end()) {
      message = absl::StrCat("\"", setting->value, "\" is in the list twice");
    }
    if (!message.empty()) {
      diagnostics.Error(item.location, path, message);
      return std::nullopt;
    }
    sweep.field = setting->path;
    sweep.values.push_back(setting->value);
  }
  return sweep;
}

}  // namespace

std::vector<SettingSource> ReadPlanSettings(const YamlValue& map, const std::string& path,
                                            const Plan& base, Diagnostics& diagnostics) {
  if (map.kind != YamlValue::Kind::kMap) {
    diagnostics.Error(map.location, path,
                      absl::StrCat(Describe(map), " must be a map of plan fields"));
    return {};
  }
  return ReadGroup(map, "", path, base, diagnostics);
}

std::vector<SweepSource> ReadSweeps(const YamlValue& map, const std::string& path, const Plan& base,
                                    Diagnostics& diagnostics) {
  if (map.kind != YamlValue::Kind::kMap) {
    diagnostics.Error(map.location, path,
                      absl::StrCat(Describe(map), " must be a map of plan fields to lists"));
    return {};
  }
  std::vector<Leaf> leaves;
  Walk(map, "", path, kSweepRule, diagnostics, leaves);
  std::vector<SweepSource> sweeps;
  std::map<std::string, int> lines;
  for (const Leaf& leaf : leaves) {
    std::optional<SweepSource> sweep = ReadSweep(leaf, base, diagnostics);
    if (sweep.has_value() && IsNew(sweep->field, leaf, lines, diagnostics)) {
      sweeps.push_back(*std::move(sweep));
    }
  }
  return sweeps;
}

void CheckAcceptance(const std::vector<SettingSource>& settings,
                     const std::vector<SweepSource>& sweeps, const Plan& base,
                     Diagnostics& diagnostics) {
  constexpr absl::string_view kDrafts = "decode.speculative.draft_tokens";
  constexpr absl::string_view kAcceptance = "decode.speculative.acceptance";
  const auto report = [&](const Location& location, const std::string& path) {
    diagnostics.Error(location, path,
                      absl::StrCat("drafts need ", kAcceptance,
                                   " beside them, the chance from 0 to 1 that one is accepted"));
  };
  // A base with drafts has an acceptance of its own; one that could not be read has its own error.
  if (base.speculative.draft_tokens > 0 || !diagnostics.ok()) {
    return;
  }
  const auto accepts = [&](const auto& list, const auto& path_of) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& one) { return path_of(one) == kAcceptance; });
  };
  const auto set_path = [](const SettingSource& one) { return one.setting.path; };
  const auto swept_path = [](const SweepSource& one) { return one.field; };
  if (accepts(settings, set_path) || accepts(sweeps, swept_path)) {
    return;
  }
  for (const SettingSource& one : settings) {
    if (one.setting.path == kDrafts && one.setting.value != "0") {
      report(one.location, one.path);
    }
  }
  for (const SweepSource& one : sweeps) {
    if (one.field == kDrafts && one.values != std::vector<std::string>{"0"}) {
      report(one.location, one.path);
    }
  }
}

absl::Status CheckNothingIdle(const Plan& plan) {
  const auto idle = [](absl::string_view field, absl::string_view needs) {
    return absl::InvalidArgumentError(absl::StrCat(field, " has no effect without ", needs));
  };
  if (plan.moe.l2_pin.has_value() && plan.moe.l2_pin->share == 0) {
    return idle("moe.l2_pin.select", "moe.l2_pin.share > 0");
  }
  if (plan.speculative.draft_tokens == 0 && plan.speculative != Speculative{}) {
    return idle("decode.speculative", "decode.speculative.draft_tokens >= 1");
  }
  constexpr int64_t kMostDrafts = 1024;
  if (plan.speculative.draft_tokens > kMostDrafts) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode.speculative.draft_tokens: ", plan.speculative.draft_tokens,
                     " must be at most ", kMostDrafts));
  }
  constexpr double kMostHostUs = 1e9;
  for (const auto& [field, host_us] :
       {std::pair("launch.host_us_per_launch", plan.launch.host_us_per_launch),
        std::pair("launch.host_us_per_step", plan.launch.host_us_per_step)}) {
    if (host_us > kMostHostUs) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": ", host_us, " must be at most ", kMostHostUs, " us"));
    }
  }
  if (!plan.engine_result.empty() && plan.engine.empty()) {
    return idle("engine.result", "engine.command");
  }
  if (!plan.engine.empty() && !absl::StartsWith(plan.engine_result, "/")) {
    return absl::InvalidArgumentError(
        "engine.command needs engine.result, a JSON pointer into its output: \"/tokens_per_s\"");
  }
  return absl::OkStatus();
}

std::string WhyIdle(const FieldSetting& setting, const Plan& plan) {
  const bool is_of_ranks =
      absl::StartsWith(setting.path, "collectives.") || setting.path == "parallel.attention";
  if (is_of_ranks && plan.num_ranks() == 1) {
    return absl::StrCat(setting.path, " has no effect with one rank");
  }
  if (setting.path == "collectives.all_to_all" &&
      plan.parallel.attention != AttentionParallel::kData) {
    return absl::StrCat(setting.path, " has no effect without parallel.attention data");
  }
  return "";
}

}  // namespace lastflop
