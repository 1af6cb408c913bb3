#include "spec/intervention_reader.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/suggest.h"
#include "common/trial.h"
#include "spec/map_reader.h"
#include "spec/scalars.h"

namespace lastflop {
namespace {

constexpr size_t kLongestId = 64;
constexpr size_t kMostChoices = 64;
constexpr int64_t kMostTier = 9;

absl::StatusOr<std::string> ParseId(const YamlValue& value) {
  LASTFLOP_ASSIGN_OR_RETURN(std::string id, ParseText(value));
  const bool is_plain = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  });
  if (!is_plain || id.size() > kLongestId) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(value), " must be letters, digits, - and _, at most ", kLongestId));
  }
  if (id == kBaselineId) {
    return absl::InvalidArgumentError("\"baseline\" is the baseline's own id; choose another");
  }
  return id;
}

// step | moe | op:NAME; whether there is such an op is checked where the step is known.
absl::StatusOr<std::string> ParseClaimedPart(const YamlValue& value) {
  LASTFLOP_ASSIGN_OR_RETURN(std::string of, ParseText(value));
  if (of != "step" && of != "moe" && !(absl::StartsWith(of, "op:") && of.size() > 3)) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(value), " must be step, moe or op:NAME",
                                                   DidYouMean(of, {"step", "moe"})));
  }
  return of;
}

Effort ReadEffort(const YamlValue& value, const std::string& path, Diagnostics& diagnostics) {
  Effort effort;
  if (value.kind == YamlValue::Kind::kMap) {
    MapReader reader(value, path, diagnostics);
    const bool has_all =
        static_cast<int>(reader.Required("low", effort.low_hours, ParseEffortHours)) +
            static_cast<int>(reader.Required("likely", effort.likely_hours, ParseEffortHours)) +
            static_cast<int>(reader.Required("high", effort.high_hours, ParseEffortHours)) ==
        3;
    reader.Finish();
    if (has_all &&
        (effort.low_hours > effort.likely_hours || effort.likely_hours > effort.high_hours)) {
      diagnostics.Error(value.location, path, "must have low <= likely <= high");
    }
    return effort;
  }
  const absl::StatusOr<double> hours = ParseEffortHours(value);
  if (!hours.ok()) {
    diagnostics.Error(value.location, path,
                      absl::StrCat(hours.status().message(), ", or {low, likely, high} of it"));
    return effort;
  }
  return {.low_hours = *hours, .likely_hours = *hours, .high_hours = *hours};
}

// A list of two, where null leaves a side open. False: reported, or not a list of two.
template <typename T, typename Parse>
bool ReadRange(const YamlValue& value, const std::string& path, absl::string_view rule,
               const Parse& parse, std::optional<T>& low, std::optional<T>& high,
               Diagnostics& diagnostics) {
  if (value.kind != YamlValue::Kind::kList || value.items.size() != 2) {
    diagnostics.Error(value.location, path, absl::StrCat(Describe(value), " must be ", rule));
    return false;
  }
  for (size_t i = 0; i < 2; ++i) {
    const YamlValue& item = value.items[i];
    if (item.kind == YamlValue::Kind::kNull) {
      continue;
    }
    const auto parsed = parse(item);
    if (!parsed.ok()) {
      diagnostics.Error(item.location, IndexPath(path, i), parsed.status().message());
      return false;
    }
    (i == 0 ? low : high) = *parsed;
  }
  if (low.has_value() && high.has_value() && *low > *high) {
    diagnostics.Error(value.location, path,
                      absl::StrCat("the range is empty: ", *low, " > ", *high));
    return false;
  }
  return true;
}

void ReadSpeedup(const YamlValue& value, const std::string& path, Claim& claim,
                 Diagnostics& diagnostics) {
  constexpr absl::string_view kRule = "a speedup > 0, 1.2 for +20%, or [low, high]";
  if (value.kind != YamlValue::Kind::kList) {
    const absl::StatusOr<double> speedup = NumberIn(kPositive)(value);
    if (!speedup.ok()) {
      diagnostics.Error(value.location, path,
                        absl::StrCat(speedup.status().message(), "; it is ", kRule));
      return;
    }
    claim.low = *speedup;
    return;
  }
  std::optional<double> low;
  if (!ReadRange(value, path, kRule, NumberIn(kPositive), low, claim.high, diagnostics)) {
    return;
  }
  if (!low.has_value()) {
    return diagnostics.Error(value.location, path, "a claim has a low end; only high may be null");
  }
  claim.low = *low;
}

Claim ReadClaim(const YamlValue& value, const std::string& path, Diagnostics& diagnostics) {
  Claim claim;
  MapReader reader(value, path, diagnostics);
  if (const YamlValue* speedup = reader.Required("speedup")) {
    ReadSpeedup(*speedup, reader.PathOf("speedup"), claim, diagnostics);
  }
  reader.Optional("of", claim.of, ParseClaimedPart);
  if (const YamlValue* batch = reader.Optional("batch")) {
    ReadRange(*batch, reader.PathOf("batch"), "[low, high] of batches, null for an open side",
              IntegerIn(1), claim.batch_low, claim.batch_high, diagnostics);
  }
  reader.Required("source", claim.source, ParseText);
  reader.Finish();
  return claim;
}

Prior ReadPrior(const YamlValue& value, const std::string& path, Diagnostics& diagnostics) {
  Prior prior;
  MapReader reader(value, path, diagnostics);
  reader.Required("result", prior.result, ParseText);
  reader.Required("source", prior.source, ParseText);
  reader.Finish();
  return prior;
}

std::vector<std::string> ReadIds(const YamlValue& value, const std::string& path,
                                 Diagnostics& diagnostics) {
  if (value.kind != YamlValue::Kind::kList) {
    diagnostics.Error(value.location, path,
                      absl::StrCat(Describe(value), " must be a list of ids of interventions"));
    return {};
  }
  std::vector<std::string> ids;
  for (size_t i = 0; i < value.items.size(); ++i) {
    const absl::StatusOr<std::string> id = ParseText(value.items[i]);
    if (!id.ok() || std::find(ids.begin(), ids.end(), *id) != ids.end()) {
      diagnostics.Error(value.items[i].location, IndexPath(path, i),
                        id.ok() ? absl::StrCat("\"", *id, "\" is in the list twice")
                                : std::string(id.status().message()));
      continue;
    }
    ids.push_back(*id);
  }
  return ids;
}

// `set` and `try`: what the intervention changes.
void ReadPatch(MapReader& reader, const Plan& baseline, InterventionSource& source,
               Diagnostics& diagnostics) {
  Intervention& intervention = source.intervention;
  const YamlValue* set = reader.Optional("set");
  const YamlValue* sweep = reader.Optional("try");
  if (reader.is_map() && reader.value().Find("set") == nullptr &&
      reader.value().Find("try") == nullptr) {
    diagnostics.Error(source.location, reader.PathOf("set"),
                      "the key is missing: an intervention changes the plan by set or try");
  }
  if (set != nullptr) {
    source.settings = ReadPlanSettings(*set, reader.PathOf("set"), baseline, diagnostics);
  }
  if (sweep != nullptr) {
    source.sweeps = ReadSweeps(*sweep, reader.PathOf("try"), baseline, diagnostics);
  }
  CheckAcceptance(source.settings, source.sweeps, baseline, diagnostics);
  for (const SettingSource& setting : source.settings) {
    intervention.set.push_back(setting.setting);
  }
  size_t num_choices = 1;
  for (const SweepSource& tried : source.sweeps) {
    intervention.try_values.emplace_back(tried.field, tried.values);
    num_choices *= std::min(tried.values.size(), kMostChoices + 1);
    for (const SettingSource& setting : source.settings) {
      if (setting.setting.path == tried.field) {
        diagnostics.Error(tried.location, tried.path,
                          absl::StrCat(tried.field, " is set on line ", setting.location.line,
                                       " too; a field is either set or tried"));
      }
    }
    if (num_choices > kMostChoices) {
      diagnostics.Error(tried.location, tried.path,
                        absl::StrCat("the sweep has more than ", kMostChoices, " choices"));
      return;
    }
  }
}

InterventionSource ReadIntervention(const YamlValue& value, const std::string& path,
                                    const Plan& baseline, Diagnostics& diagnostics) {
  InterventionSource source;
  source.location = value.location;
  source.path = path;
  source.value = &value;
  Intervention& intervention = source.intervention;
  MapReader reader(value, path, diagnostics);
  reader.Required("id", intervention.id, ParseId);
  intervention.title = intervention.id;
  reader.Optional("title", intervention.title, ParseText);
  int64_t tier = intervention.tier;
  reader.Optional("tier", tier, IntegerIn(1, kMostTier));
  intervention.tier = static_cast<int>(tier);
  if (const YamlValue* effort = reader.Required("effort")) {
    intervention.effort = ReadEffort(*effort, reader.PathOf("effort"), diagnostics);
  }
  reader.Optional("risk", intervention.risk, ParseWord<Risk>);
  reader.Optional("quality", intervention.quality, ParseWord<Quality>);
  reader.Optional("switchable", intervention.switchable, ParseWord<Switchable>);
  if (const YamlValue* claim = reader.Optional("claim")) {
    intervention.claim = ReadClaim(*claim, reader.PathOf("claim"), diagnostics);
  }
  if (const YamlValue* prior = reader.Optional("prior")) {
    intervention.prior = ReadPrior(*prior, reader.PathOf("prior"), diagnostics);
  }
  if (const YamlValue* needs = reader.Optional("needs")) {
    intervention.needs = ReadIds(*needs, reader.PathOf("needs"), diagnostics);
  }
  if (const YamlValue* excludes = reader.Optional("excludes")) {
    intervention.excludes = ReadIds(*excludes, reader.PathOf("excludes"), diagnostics);
  }
  ReadPatch(reader, baseline, source, diagnostics);
  reader.Finish();
  return source;
}

// ---- Checks over all interventions ----

class RelationChecker {
 public:
  RelationChecker(const std::vector<InterventionSource>& sources, Diagnostics& diagnostics)
      : sources_(sources), diagnostics_(diagnostics) {
    for (const InterventionSource& source : sources) {
      by_id_.emplace(source.intervention.id, &source);
    }
  }

  void Check() {
    for (const InterventionSource& source : sources_) {
      CheckId(source);
      CheckIds(source, "needs", source.intervention.needs);
      CheckIds(source, "excludes", source.intervention.excludes);
    }
    for (const InterventionSource& source : sources_) {
      std::set<std::string> reached;
      if (!HasCircle(source, source.intervention.id, reached)) {
        CheckExclusions(source, reached);
        CheckNeededSettings(source, reached);
      }
    }
  }

 private:
  void CheckId(const InterventionSource& source) {
    const std::string& id = source.intervention.id;
    const InterventionSource* first = by_id_.at(id);
    if (!id.empty() && first != &source) {
      diagnostics_.Error(source.value->Find("id")->location, JoinPath(source.path, "id"),
                         absl::StrCat("\"", id, "\" is an id twice; the first one is on line ",
                                      first->value->Find("id")->location.line));
    }
  }

  void CheckIds(const InterventionSource& source, absl::string_view key,
                const std::vector<std::string>& ids) {
    for (const std::string& id : ids) {
      std::string message;
      if (id == source.intervention.id) {
        message = absl::StrCat("\"", id, "\" names itself");
      } else if (!by_id_.contains(id)) {
        std::vector<absl::string_view> known;
        for (const auto& [known_id, known_source] : by_id_) {
          known.push_back(known_id);
        }
        message = absl::StrCat("no intervention is called \"", id, "\"", DidYouMean(id, known));
      }
      if (!message.empty()) {
        diagnostics_.Error(source.value->Find(key)->location, JoinPath(source.path, key), message);
      }
    }
  }

  // Whether needs lead from `source` back to `start`; `reached` gets what is needed on the way.
  bool HasCircle(const InterventionSource& source, const std::string& start,
                 std::set<std::string>& reached) {
    for (const std::string& id : source.intervention.needs) {
      const auto needed = by_id_.find(id);
      if (needed == by_id_.end() || id == source.intervention.id) {
        continue;  // Reported already.
      }
      if (id == start) {
        diagnostics_.Error(source.value->Find("needs")->location, JoinPath(source.path, "needs"),
                           absl::StrCat("needs go in a circle: \"", start, "\" -> ... -> \"",
                                        source.intervention.id, "\" -> \"", start, "\""));
        return true;
      }
      if (reached.insert(id).second && HasCircle(*needed->second, start, reached)) {
        return true;
      }
    }
    return false;
  }

  void CheckExclusions(const InterventionSource& source, const std::set<std::string>& needed) {
    std::set<std::string> members = needed;
    members.insert(source.intervention.id);
    for (const std::string& member : members) {
      for (const std::string& excluded : by_id_.at(member)->intervention.excludes) {
        if (members.contains(excluded) && excluded != member) {
          diagnostics_.Error(
              source.location, source.path,
              absl::StrCat("\"", source.intervention.id, "\" cannot be applied: \"", member,
                           "\" excludes \"", excluded, "\", and both are part of it"));
          return;
        }
      }
    }
  }

  // Everything that `id` needs, by way of others too; it may be in a circle.
  void CollectNeeds(const std::string& id, std::set<std::string>& needs) const {
    for (const std::string& needed : by_id_.at(id)->intervention.needs) {
      if (by_id_.contains(needed) && needs.insert(needed).second) {
        CollectNeeds(needed, needs);
      }
    }
  }

  // Two needed ones may not disagree about a field, unless one of them needs the other and so is
  // known to come after it.
  void CheckNeededSettings(const InterventionSource& source, const std::set<std::string>& needed) {
    std::map<std::string, std::pair<std::string, std::string>> first;  // By path: value and id.
    for (const std::string& id : needed) {
      std::set<std::string> below;
      CollectNeeds(id, below);
      for (const FieldSetting& setting : by_id_.at(id)->intervention.set) {
        const auto [found, is_new] = first.try_emplace(setting.path, std::pair(setting.value, id));
        const auto& [value, other] = found->second;
        if (is_new || value == setting.value) {
          continue;
        }
        std::set<std::string> below_other;
        CollectNeeds(other, below_other);
        if (!below.contains(other) && !below_other.contains(id)) {
          diagnostics_.Error(source.value->Find("needs")->location, JoinPath(source.path, "needs"),
                             absl::StrCat("\"", source.intervention.id, "\" cannot be applied: \"",
                                          other, "\" sets ", setting.path, " to ", value, " and \"",
                                          id, "\" to ", setting.value, ", and it needs both"));
          return;
        }
      }
    }
  }

  const std::vector<InterventionSource>& sources_;  // Outlives this.
  Diagnostics& diagnostics_;                        // Outlives this.
  std::map<std::string, const InterventionSource*> by_id_;
};

// Settings that say what the baseline says already, and patches that depend on others.
void Warn(const InterventionSource& source, const Plan& baseline,
          std::vector<std::string>& warnings) {
  Plan patched = baseline;
  std::set<std::string> changed_groups;  // moe.l2_pin of moe.l2_pin.share
  for (const FieldSetting& setting : source.intervention.set) {
    const Plan before = patched;
    if (SetPlanField(setting.path, setting.value, patched).ok() && patched != before) {
      changed_groups.insert(setting.path.substr(0, setting.path.rfind('.')));
    }
  }
  for (const FieldSetting& setting : source.intervention.set) {
    // A composite value is written as a whole, so part of it may well be the default.
    const std::string group = setting.path.substr(0, setting.path.rfind('.'));
    const bool is_part = absl::StrContains(group, ".") && changed_groups.contains(group);
    Plan alone = baseline;
    if (!is_part && SetPlanField(setting.path, setting.value, alone).ok() && alone == baseline) {
      warnings.push_back(absl::StrCat(source.intervention.id, ": ", setting.path, " is ",
                                      setting.value, " in the baseline already"));
    }
  }
  if (patched == baseline && source.sweeps.empty() && source.intervention.needs.empty()) {
    warnings.push_back(absl::StrCat(
        source.intervention.id, ": the patch leaves the baseline as it is; it is measured anyway"));
  }
  if (!source.intervention.needs.empty()) {
    warnings.push_back(absl::StrCat(source.intervention.id,
                                    ": its figure is that of the patch together with what it "
                                    "needs: ",
                                    absl::StrJoin(source.intervention.needs, ", ")));
  }
}

}  // namespace

std::vector<InterventionSource> ReadInterventions(const YamlValue& list, const Plan& baseline,
                                                  Diagnostics& diagnostics,
                                                  std::vector<std::string>& warnings) {
  std::vector<InterventionSource> sources;
  if (list.kind != YamlValue::Kind::kList) {
    diagnostics.Error(list.location, "interventions",
                      absl::StrCat(Describe(list), " must be a list of interventions"));
    return sources;
  }
  for (size_t i = 0; i < list.items.size(); ++i) {
    sources.push_back(
        ReadIntervention(list.items[i], IndexPath("interventions", i), baseline, diagnostics));
  }
  RelationChecker(sources, diagnostics).Check();
  if (diagnostics.ok()) {
    for (const InterventionSource& source : sources) {
      Warn(source, baseline, warnings);
    }
  }
  return sources;
}

}  // namespace lastflop
