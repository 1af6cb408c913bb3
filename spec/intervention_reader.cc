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
constexpr size_t kMostInterventions = 2000;  // A thousand are ranked in two seconds.
constexpr ptrdiff_t kMostNeeds = 64;
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
    for (size_t i = 0; i < sources.size(); ++i) {
      index_of_.emplace(sources[i].intervention.id, i);
    }
  }

  void Check() {
    for (size_t i = 0; i < sources_.size(); ++i) {
      CheckId(i);
      CheckIds(sources_[i], "needs", sources_[i].intervention.needs);
      CheckIds(sources_[i], "excludes", sources_[i].intervention.excludes);
      needs_.push_back(CollectNeeds(i));
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      if (needs_[i][i]) {
        SayCircle(i);
      } else if (CheckDepth(i)) {
        CheckExclusions(i);
        CheckNeededSettings(i);
      }
    }
  }

 private:
  using Members = std::vector<bool>;  // By index of the intervention.

  const std::string& IdOf(size_t index) const { return sources_[index].intervention.id; }

  void CheckId(size_t index) {
    const InterventionSource& source = sources_[index];
    const std::string& id = IdOf(index);
    if (const size_t first = index_of_.at(id); !id.empty() && first != index) {
      diagnostics_.Error(source.value->Find("id")->location, JoinPath(source.path, "id"),
                         absl::StrCat("\"", id, "\" is an id twice; the first one is on line ",
                                      sources_[first].value->Find("id")->location.line));
    }
  }

  void CheckIds(const InterventionSource& source, absl::string_view key,
                const std::vector<std::string>& ids) {
    for (const std::string& id : ids) {
      std::string message;
      if (id == source.intervention.id) {
        message = absl::StrCat("\"", id, "\" names itself");
      } else if (!index_of_.contains(id)) {
        std::vector<absl::string_view> known;
        for (const auto& [known_id, index] : index_of_) {
          known.push_back(known_id);
        }
        message = absl::StrCat("no intervention is called \"", id, "\"", DidYouMean(id, known));
      }
      if (!message.empty()) {
        diagnostics_.Error(source.value->Find(key)->location, JoinPath(source.path, key), message);
      }
    }
  }

  // Those that `index` names as needed and that are there; itself is reported already.
  std::vector<size_t> DirectNeeds(size_t index) const {
    std::vector<size_t> direct;
    for (const std::string& id : sources_[index].intervention.needs) {
      if (const auto found = index_of_.find(id); found != index_of_.end() && id != IdOf(index)) {
        direct.push_back(found->second);
      }
    }
    return direct;
  }

  // Everything that `index` needs, by way of others too: itself as well where needs go in a circle.
  Members CollectNeeds(size_t index) const {
    Members needs(sources_.size());
    std::vector<size_t> open = {index};
    while (!open.empty()) {
      const size_t from = open.back();
      open.pop_back();
      for (const size_t needed : DirectNeeds(from)) {
        if (!needs[needed]) {
          needs[needed] = true;
          open.push_back(needed);
        }
      }
    }
    return needs;
  }

  void SayCircle(size_t index) {
    // The last one before `index` again: the first that names it, of all that it needs.
    size_t last = index;
    for (size_t i = 0; i < sources_.size(); ++i) {
      const std::vector<size_t> direct = DirectNeeds(i);
      if (needs_[index][i] && std::find(direct.begin(), direct.end(), index) != direct.end()) {
        last = i;
        break;
      }
    }
    const InterventionSource& source = sources_[last];
    diagnostics_.Error(source.value->Find("needs")->location, JoinPath(source.path, "needs"),
                       absl::StrCat("needs go in a circle: \"", IdOf(index), "\" -> ... -> \"",
                                    IdOf(last), "\" -> \"", IdOf(index), "\""));
  }

  bool CheckDepth(size_t index) {
    const auto num_needs = std::count(needs_[index].begin(), needs_[index].end(), true);
    if (num_needs > kMostNeeds) {
      const InterventionSource& source = sources_[index];
      diagnostics_.Error(
          source.value->Find("needs")->location, JoinPath(source.path, "needs"),
          absl::StrCat("\"", IdOf(index), "\" needs ", num_needs,
                       " others, theirs included; at most ", kMostNeeds, " are applied together"));
    }
    return num_needs <= kMostNeeds;
  }

  void CheckExclusions(size_t index) {
    Members members = needs_[index];
    members[index] = true;
    for (size_t member = 0; member < members.size(); ++member) {
      if (!members[member]) {
        continue;
      }
      for (const std::string& id : sources_[member].intervention.excludes) {
        const auto excluded = index_of_.find(id);
        if (excluded != index_of_.end() && members[excluded->second] && id != IdOf(member)) {
          diagnostics_.Error(
              sources_[index].location, sources_[index].path,
              absl::StrCat("\"", IdOf(index), "\" cannot be applied: \"", IdOf(member),
                           "\" excludes \"", id, "\", and both are part of it"));
          return;
        }
      }
    }
  }

  // Two needed ones may not disagree about a field, unless one of them needs the other and so is
  // known to come after it.
  void CheckNeededSettings(size_t index) {
    std::map<absl::string_view, std::pair<absl::string_view, size_t>> first;  // Value, and whose.
    for (size_t member = 0; member < sources_.size(); ++member) {
      if (!needs_[index][member]) {
        continue;
      }
      for (const FieldSetting& setting : sources_[member].intervention.set) {
        const auto [found, is_new] =
            first.try_emplace(setting.path, std::pair(absl::string_view(setting.value), member));
        const auto& [value, other] = found->second;
        if (is_new || value == setting.value || needs_[member][other] || needs_[other][member]) {
          continue;
        }
        const InterventionSource& source = sources_[index];
        diagnostics_.Error(
            source.value->Find("needs")->location, JoinPath(source.path, "needs"),
            absl::StrCat("\"", IdOf(index), "\" cannot be applied: \"", IdOf(other), "\" sets ",
                         setting.path, " to ", value, " and \"", IdOf(member), "\" to ",
                         setting.value, ", and it needs both"));
        return;
      }
    }
  }

  const std::vector<InterventionSource>& sources_;  // Outlives this.
  Diagnostics& diagnostics_;                        // Outlives this.
  std::map<std::string, size_t> index_of_;          // The first that has the id.
  std::vector<Members> needs_;                      // By index.
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
  if (list.items.size() > kMostInterventions) {
    diagnostics.Error(list.location, "interventions",
                      absl::StrCat("has ", list.items.size(), " interventions; at most ",
                                   kMostInterventions, " are read"));
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
