#include "spec/campaign_checks.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "common/expand_trials.h"
#include "common/plan_quality.h"
#include "common/suggest.h"
#include "common/trial.h"
#include "spec/plan_reader.h"

namespace lastflop {
namespace {

constexpr absl::string_view kOpPrefix = "op:";

class CampaignChecker {
 public:
  CampaignChecker(const CampaignHooks& hooks, const YamlValue& root,
                  const std::vector<InterventionSource>& sources, Campaign& campaign,
                  Diagnostics& diagnostics)
      : hooks_(hooks),
        root_(root),
        sources_(sources),
        campaign_(campaign),
        diagnostics_(diagnostics) {}

  void Check() {
    CheckContexts();
    CheckBaseline();
    if (!diagnostics_.ok()) {
      return;
    }
    for (size_t i = 0; i < sources_.size(); ++i) {
      CheckIntervention(sources_[i], campaign_.interventions[i]);
    }
  }

 private:
  absl::Status CheckPlan(const Plan& plan) const {
    return hooks_.check_plan ? hooks_.check_plan(campaign_, plan) : absl::OkStatus();
  }
  absl::Status CheckPoint(const Plan& plan, const Point& point) const {
    return hooks_.check_point ? hooks_.check_point(campaign_, plan, point) : absl::OkStatus();
  }

  // Where the file says what `message` is about: the field of the baseline that it names first.
  SettingSource BlamedSetting(absl::string_view message) const {
    const YamlValue* baseline = root_.Find("baseline");
    SettingSource blamed{.setting = {},
                         .location = baseline == nullptr ? root_.location : baseline->location,
                         .path = "baseline"};
    if (baseline == nullptr) {
      return blamed;
    }
    Diagnostics ignored("");
    size_t best = absl::string_view::npos;
    for (const SettingSource& source : ReadPlanSettings(*baseline, "baseline", Plan{}, ignored)) {
      const size_t found = message.find(source.setting.path);
      if (found < best) {
        best = found;
        blamed = source;
      }
    }
    return blamed;
  }

  // The step of a longer context can be measured; the model was not made for it.
  void CheckContexts() {
    const int64_t most = campaign_.model.max_position_embeddings;
    for (size_t i = 0; i < campaign_.points.size(); ++i) {
      if (most > 0 && campaign_.points[i].context > most) {
        campaign_.warnings.push_back(
            absl::StrCat(IndexPath("workload.points", i), ": context ", campaign_.points[i].context,
                         " is more than the model's max_position_embeddings (", most, ")"));
      }
    }
  }

  void CheckBaseline() {
    if (const absl::Status status = CheckPlan(campaign_.baseline); !status.ok()) {
      const SettingSource blamed = BlamedSetting(status.message());
      diagnostics_.Error(blamed.location, blamed.path,
                         absl::StrCat("the baseline is infeasible: ", status.message()));
      return;
    }
    std::vector<Infeasible> cells;
    for (size_t i = 0; i < campaign_.points.size(); ++i) {
      const absl::Status status = CheckPoint(campaign_.baseline, campaign_.points[i]);
      if (!status.ok()) {
        cells.push_back({.intervention_id = kBaselineId,
                         .choice = "",
                         .point_index = static_cast<int64_t>(i),
                         .reason = std::string(status.message())});
      }
    }
    const bool is_everywhere = cells.size() == campaign_.points.size();
    for (Infeasible& cell : cells) {
      const auto index = static_cast<size_t>(cell.point_index);
      const std::string path = IndexPath("workload.points", index);
      if (is_everywhere) {
        diagnostics_.Error(root_.Find("workload")->Find("points")->items[index].location, path,
                           absl::StrCat("the baseline is infeasible: ", cell.reason));
        continue;
      }
      campaign_.warnings.push_back(
          absl::StrCat(path, ": the baseline is infeasible there: ", cell.reason));
      campaign_.infeasible.push_back(std::move(cell));
    }
  }

  bool IsBaselineInfeasibleAt(size_t point_index) const {
    return std::any_of(campaign_.infeasible.begin(), campaign_.infeasible.end(),
                       [point_index](const Infeasible& cell) {
                         return cell.intervention_id == kBaselineId &&
                                cell.point_index == static_cast<int64_t>(point_index);
                       });
  }

  void CheckIntervention(const InterventionSource& source, Intervention& intervention) {
    const std::vector<Choice> choices = ChoicesOf(intervention);
    std::vector<std::string> reasons;
    CheckNeeds(source, intervention);
    CheckClaimedBatches(source, intervention);
    for (const Choice& choice : choices) {
      const absl::StatusOr<Plan> plan = VariantPlan(campaign_, intervention, choice);
      if (!plan.ok()) {
        return diagnostics_.Error(source.location, source.path, plan.status().message());
      }
      if (const absl::Status status = CheckNothingIdle(*plan); !status.ok()) {
        return diagnostics_.Error(source.location, source.path, status.message());
      }
      const std::string choice_text = ChoiceText(choice);
      if (!CheckQuality(source, *plan, intervention)) {
        return;
      }
      absl::Status status = CheckPlan(*plan);
      if (status.ok()) {
        status = CheckEffect(source, intervention, choice, *plan);
      }
      if (!status.ok()) {
        reasons.push_back(choice.empty() ? std::string(status.message())
                                         : absl::StrCat(choice_text, ": ", status.message()));
        campaign_.infeasible.push_back({.intervention_id = intervention.id,
                                        .choice = choice_text,
                                        .point_index = -1,
                                        .reason = std::string(status.message())});
        continue;
      }
      CheckPoints(intervention, choice_text, *plan);
      CheckClaim(source, *plan);
    }
    if (reasons.size() == choices.size()) {
      intervention.infeasible_reason = absl::StrJoin(reasons, "; ");
    }
  }

  // What a patch sets, and nothing of the step uses, is a warning; when that is all of it, the time
  // of the baseline would be measured again and ranked.
  absl::Status CheckEffect(const InterventionSource& source, const Intervention& intervention,
                           const Choice& choice, const Plan& plan) {
    std::vector<FieldSetting> settings = intervention.set;
    settings.insert(settings.end(), choice.begin(), choice.end());
    std::vector<std::string> idle;
    for (const FieldSetting& setting : settings) {
      if (std::string why = WhyIdle(setting, plan); !why.empty()) {
        idle.push_back(std::move(why));
      }
    }
    if (!idle.empty() && idle.size() == settings.size() && intervention.needs.empty()) {
      return absl::InvalidArgumentError(absl::StrJoin(idle, "; "));
    }
    for (const std::string& why : idle) {
      Warn(absl::StrCat(source.path, ": ", intervention.id, ": ", why));
    }
    return absl::OkStatus();
  }

  void Warn(std::string warning) {
    if (warned_.insert(warning).second) {
      campaign_.warnings.push_back(std::move(warning));
    }
  }

  // Such a claim ends as undecided, whatever is measured.
  void CheckClaimedBatches(const InterventionSource& source, const Intervention& intervention) {
    const std::optional<Claim>& claim = intervention.claim;
    if (claim.has_value() &&
        std::none_of(campaign_.points.begin(), campaign_.points.end(),
                     [&claim](const Point& point) { return claim->IsOfBatch(point.batch); })) {
      Warn(absl::StrCat(
          JoinPath(source.path, "claim.batch"), ": ", intervention.id,
          ": no point has a batch that the claim is about, so nothing here judges it"));
    }
  }

  // A patch is put over those that it needs: what both set is the needed one's no longer.
  void CheckNeeds(const InterventionSource& source, const Intervention& intervention) {
    std::vector<std::string> open = intervention.needs;
    std::set<std::string> seen;
    while (!open.empty()) {
      const std::string id = std::move(open.back());
      open.pop_back();
      const auto needed =
          std::find_if(campaign_.interventions.begin(), campaign_.interventions.end(),
                       [&id](const Intervention& one) { return one.id == id; });
      if (needed == campaign_.interventions.end() || !seen.insert(id).second) {
        continue;
      }
      open.insert(open.end(), needed->needs.begin(), needed->needs.end());
      for (const FieldSetting& under : needed->set) {
        WarnOfOverride(source, intervention, id, under);
      }
    }
  }

  void WarnOfOverride(const InterventionSource& source, const Intervention& intervention,
                      const std::string& needed, const FieldSetting& under) {
    const auto warn = [&](const std::string& value) {
      if (value != under.value) {
        Warn(absl::StrCat(source.path, ": ", intervention.id, ": its ", under.path, "=", value,
                          " takes the place of ", under.path, "=", under.value, " of \"", needed,
                          "\", which it needs"));
      }
    };
    for (const FieldSetting& over : intervention.set) {
      if (over.path == under.path) {
        warn(over.value);
      }
    }
    for (const auto& [path, values] : intervention.try_values) {
      if (path == under.path) {
        std::for_each(values.begin(), values.end(), warn);
      }
    }
  }

  // What changes the model's output is lossy whether the file says so or not; a file that says
  // `exact` of it is wrong, and false is returned. Of experts in bf16 it can be right.
  bool CheckQuality(const InterventionSource& source, const Plan& variant,
                    Intervention& intervention) {
    const std::vector<std::string> changes =
        LossyChanges(campaign_.model, campaign_.baseline, variant);
    const std::string unquantized =
        UnquantizedExperts(campaign_.model, campaign_.baseline, variant);
    if (changes.empty() && unquantized.empty()) {
      return true;
    }
    const YamlValue* quality = source.value->Find("quality");
    const bool is_said_exact = quality != nullptr && intervention.quality == Quality::kExact;
    if (is_said_exact && changes.empty()) {
      Warn(absl::StrCat(source.path, ": exact, as the file says: ", unquantized,
                        " is that only of the baseline's weights dequantized; those here are "
                        "others, and the output differs"));
      return true;
    }
    if (is_said_exact) {
      diagnostics_.Error(quality->location, JoinPath(source.path, "quality"),
                         absl::StrCat("exact, but the patch changes the model's output (",
                                      absl::StrJoin(changes, "; "), "): write lossy"));
      return false;
    }
    intervention.quality = Quality::kLossy;
    return true;
  }

  void CheckPoints(const Intervention& intervention, const std::string& choice_text,
                   const Plan& plan) {
    for (size_t i = 0; i < campaign_.points.size(); ++i) {
      if (IsBaselineInfeasibleAt(i)) {
        continue;
      }
      const absl::Status status = CheckPoint(plan, campaign_.points[i]);
      if (!status.ok()) {
        campaign_.infeasible.push_back({.intervention_id = intervention.id,
                                        .choice = choice_text,
                                        .point_index = static_cast<int64_t>(i),
                                        .reason = std::string(status.message())});
      }
    }
  }

  // A claim about one op is about an op of the baseline or of the variant.
  void CheckClaim(const InterventionSource& source, const Plan& variant) {
    const std::optional<Claim>& claim = source.intervention.claim;
    if (!hooks_.op_names || !claim.has_value() || !absl::StartsWith(claim->of, kOpPrefix)) {
      return;
    }
    std::set<std::string> names;
    for (const Plan* plan : {&std::as_const(campaign_).baseline, &variant}) {
      const auto of_plan = hooks_.op_names(campaign_, *plan);
      if (of_plan.ok()) {
        names.insert(of_plan->begin(), of_plan->end());
      }
    }
    const std::string name(absl::StripPrefix(claim->of, kOpPrefix));
    if (!names.empty() && !names.contains(name)) {
      diagnostics_.Error(source.value->Find("claim")->Find("of")->location,
                         JoinPath(source.path, "claim.of"),
                         absl::StrCat("no op is called \"", name, "\"",
                                      DidYouMean(name, {names.begin(), names.end()}),
                                      "; there are ", absl::StrJoin(names, ", ")));
    }
  }

  const CampaignHooks& hooks_;                      // Outlives this.
  const YamlValue& root_;                           // Outlives this.
  const std::vector<InterventionSource>& sources_;  // Outlives this.
  Campaign& campaign_;                              // Outlives this.
  Diagnostics& diagnostics_;                        // Outlives this.
  std::set<std::string> warned_;
};

}  // namespace

void CheckCampaign(const CampaignHooks& hooks, const YamlValue& root,
                   const std::vector<InterventionSource>& sources, Campaign& campaign,
                   Diagnostics& diagnostics) {
  CampaignChecker(hooks, root, sources, campaign, diagnostics).Check();
}

}  // namespace lastflop
