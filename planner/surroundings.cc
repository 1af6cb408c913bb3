#include "planner/surroundings.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/expand_trials.h"
#include "common/figure_text.h"
#include "common/plan.h"
#include "common/quarantine_note.h"
#include "planner/breakdown.h"
#include "planner/drift.h"
#include "planner/economics.h"

namespace lastflop {
namespace {

constexpr size_t kMostValues = 4;  // Of one key side by side; clocks and the like vary.
constexpr double kNotableShareElsewhere = 0.1;   // A daemon takes a hundredth.
constexpr double kLargeDetectableEffect = 0.1;   // Most claims are of less than twice this.
constexpr double kHopelessDetectableEffect = 1;  // Beyond it a figure says no more than that.

// Collects warnings in order, each once.
class WarningList {
 public:
  void Add(std::string warning) {
    if (seen_.insert(warning).second) {
      warnings_.push_back(std::move(warning));
    }
  }
  std::vector<std::string> Take() { return std::move(warnings_); }

 private:
  std::set<std::string> seen_;
  std::vector<std::string> warnings_;
};

std::string TrialName(const Campaign& campaign, const TrialSpec& spec) {
  const auto index = static_cast<size_t>(spec.point_index);
  const std::string at =
      index < campaign.points.size() ? absl::StrCat(" at ", campaign.points[index].Label()) : "";
  return absl::StrCat(spec.intervention_id,
                      spec.choice.empty() ? "" : absl::StrCat(" ", spec.choice), at);
}

// Asked is not ran: a field that the trial is about and that ran with another value.
void AddEffectivePlan(const std::string& name, const TrialSpec& spec, const AttemptResult& result,
                      WarningList& warnings) {
  const absl::StatusOr<Plan> effective = ParseCanonicalText(result.effective_variant);
  if (result.effective_variant.empty() || !effective.ok()) {
    return;
  }
  const std::vector<PlanDifference> ran = DiffPlans(spec.variant, *effective);
  for (const PlanDifference& asked : DiffPlans(spec.baseline, spec.variant)) {
    for (const PlanDifference& difference : ran) {
      if (difference.path == asked.path && difference.from != "auto") {
        warnings.Add(absl::StrCat(name, ": asked for ", asked.path, "=", difference.from, ", ran ",
                                  difference.to));
      }
    }
  }
  if (spec.intervention_id != kBaselineId && spec.baseline != spec.variant &&
      result.effective_baseline == result.effective_variant) {
    warnings.Add(absl::StrCat(name, ": both arms ran the same plan"));
  }
}

// What makes the figures at a point mean little, whatever they are.
void AddQuality(const BaselinePoint& point, WarningList& warnings) {
  if (point.detectable_effect.value_or(0) > kHopelessDetectableEffect) {
    warnings.Add(absl::StrCat("at ", point.label,
                              " nothing could be told from noise: the baseline against itself "
                              "hides effects of 100% and more"));
  } else if (point.detectable_effect.value_or(0) > kLargeDetectableEffect) {
    warnings.Add(absl::StrCat("at ", point.label, " only effects above ",
                              WholeText(100 * *point.detectable_effect),
                              "% are told from noise, by the baseline against itself; where "
                              "interventions are noisier, more is needed"));
  }
  if (point.step_us.has_value() && !point.breakdown.empty()) {
    if (IsOfAnotherStep(point.breakdown_step_us, *point.step_us)) {
      warnings.Add(absl::StrFormat(
          "at %s the step of the breakdown took %.1f us and the timed one %.1f us: shares and "
          "ceilings may not hold, and settle nothing",
          point.label, point.breakdown_step_us, *point.step_us));
    }
  }
}

void AddBaseline(const RankingContext& context, WarningList& warnings) {
  for (size_t i = 0; i < context.baseline.size(); ++i) {
    const BaselinePoint& point = context.baseline[i];
    if (point.standing == Standing::kPredicted) {
      warnings.Add(
          "nothing was measured: every figure is the cost model's, and an interval "
          "is of its error in what differs, meant to hold four measurements of five");
    } else if (point.standing != Standing::kMeasured) {
      warnings.Add(absl::StrCat("the baseline has no result at ", point.label, " (",
                                ToWord(point.standing), ", ", point.reason,
                                "): no speedup there and none in the mix"));
    }
    if (point.effect_against_itself == Effect::kFaster ||
        point.effect_against_itself == Effect::kSlower) {
      warnings.Add(absl::StrFormat(
          "the baseline against itself is %s at %s (%sx): small differences there mean nothing",
          ToWord(*point.effect_against_itself), point.label,
          RatioText(point.against_itself->estimate)));
    }
    AddQuality(point, warnings);
    const std::optional<StepBreakdown>& breakdown = context.breakdowns[i];
    if (breakdown.has_value() && breakdown->overlap_us > 0.01 * breakdown->step_us) {
      warnings.Add(absl::StrFormat("parts of the step at %s overlap by %.1f us: scaled to the step",
                                   point.label, breakdown->overlap_us));
    }
  }
}

// A host whose processors others use too makes launches differ by more than the kernels do.
void AddHostLoad(const RankingContext& context, WarningList& warnings) {
  int64_t num_timed = 0;
  int64_t num_unknown = 0;
  int64_t num_beside_others = 0;
  double most = 0;
  for (const PooledTrial& trial : context.trials) {
    for (const AttemptRecord* attempt : trial.attempts) {
      const auto& environment = attempt->result.environment;
      const auto found = environment.find(kCpuShareElsewhere);
      double share = 0;
      if (found == environment.end() || !absl::SimpleAtod(found->second, &share)) {
        num_unknown += attempt->result.samples.empty() ? 0 : 1;
        continue;
      }
      ++num_timed;
      num_beside_others += share >= kNotableShareElsewhere ? 1 : 0;
      most = std::max(most, share);
    }
  }
  if (num_beside_others > 0) {
    const std::string unknown =
        num_unknown == 0 ? "" : absl::StrFormat(" (of %d it is not known)", num_unknown);
    warnings.Add(
        absl::StrFormat("the host was busy: others took up to %.0f%% of its processors while %d of "
                        "%d attempts were "
                        "timed%s; measure again when it is idle (`lastflop doctor` says when)",
                        100 * most, num_beside_others, num_timed + num_unknown, unknown));
  }
}

// A campaign that takes what is there has taken the CPU: said before all else.
void AddUnusedGpus(const RankingContext& context, WarningList& warnings) {
  for (const PooledTrial& trial : context.trials) {
    for (const AttemptRecord* attempt : trial.attempts) {
      const auto found = attempt->result.environment.find(kUnusedGpus);
      if (context.campaign().machine_auto && found != attempt->result.environment.end()) {
        warnings.Add(found->second);
      }
    }
  }
}

void AddTrials(const RankingContext& context, WarningList& warnings) {
  int64_t num_measured = 0;
  std::map<Fidelity, int64_t> by_fidelity;
  for (const PooledTrial& trial : context.trials) {
    const TrialSpec& spec = trial.trial->spec;
    const std::string name = TrialName(context.campaign(), spec);
    for (const AttemptRecord* attempt : trial.attempts) {
      for (const std::string& warning : attempt->result.warnings) {
        warnings.Add(absl::StrCat(name, ": ", warning));
      }
      if (trial.standing == Standing::kMeasured) {
        AddEffectivePlan(name, spec, attempt->result, warnings);
      }
    }
    if (trial.num_other_builds > 0) {
      warnings.Add(absl::StrCat(name, ": ", trial.num_other_builds,
                                " attempts with another build of its plugin are left out"));
    }
    if (trial.standing == Standing::kMeasured) {
      ++num_measured;
      ++by_fidelity[trial.fidelity];
    }
  }
  for (const auto& [fidelity, count] : by_fidelity) {
    if (fidelity != Fidelity::kFull) {
      warnings.Add(absl::StrCat("fidelity is ", ToWord(fidelity), ", not full, of ", count, " of ",
                                num_measured, " measured trials"));
    }
  }
}

// Keys of an attempt's environment that do not change while a campaign runs on hosts as they are.
constexpr absl::string_view kFixedKeys[] = {"build",        "driver",   "cuda_driver",
                                            "cuda_runtime", "cublaslt", "nccl",
                                            "gpu",          "cpu",      "vector_isa"};

// A campaign that went on after a new build or driver has results of both. Pairs are of one launch,
// so each of them holds; what is pooled over launches, or compared between trials, mixes them.
void AddChangedEnvironment(const RankingContext& context, WarningList& warnings) {
  for (const absl::string_view key : kFixedKeys) {
    std::map<std::string, std::set<std::string>> trials_of;
    std::set<std::string> mixed;
    for (const PooledTrial& trial : context.trials) {
      if (trial.standing != Standing::kMeasured) {
        continue;
      }
      std::set<std::string> values;
      for (const AttemptRecord* attempt : trial.attempts) {
        const auto found = attempt->result.environment.find(std::string(key));
        if (found != attempt->result.environment.end() && !found->second.empty()) {
          values.insert(found->second);
          trials_of[found->second].insert(trial.trial->spec.trial_id);
        }
      }
      if (values.size() > 1) {
        mixed.insert(TrialName(context.campaign(), trial.trial->spec));
      }
    }
    if (trials_of.size() < 2) {
      continue;
    }
    std::vector<std::string> parts;
    for (const auto& [value, trials] : trials_of) {
      parts.push_back(absl::StrCat(value, " (", trials.size(), " trials)"));
    }
    warnings.Add(absl::StrCat(
        "the environment changed while the campaign ran: ", key, " ", absl::StrJoin(parts, ", "),
        mixed.empty()
            ? "; speedups compare arms of one launch, and trials differ in it"
            : absl::StrCat("; launches of both are pooled in ", absl::StrJoin(mixed, ", "))));
  }
}

// Where a worker was taken out, others had its work, and may have been too few for some of it.
void AddQuarantines(const CampaignResults& results, WarningList& warnings) {
  for (const AttemptRecord& attempt : results.attempts) {
    if (attempt.state == AttemptState::kLost && IsQuarantineNote(attempt.outcome)) {
      warnings.Add(attempt.outcome);
    }
  }
}

void AddCampaign(const Campaign& campaign, WarningList& warnings) {
  for (const std::string& warning : campaign.warnings) {
    warnings.Add(warning);
  }
  for (const std::string& part : campaign.model.not_modelled) {
    warnings.Add(absl::StrCat("not modelled: ", part));
  }
  if (campaign.layers_kept > 0) {
    warnings.Add(absl::StrCat(campaign.layers_kept, " of ", campaign.model.num_moe_layers(),
                              " MoE layers are kept and stand for all: their times are scaled"));
  }
  if (campaign.measure.warm && campaign.fidelity == Fidelity::kPredicted) {
    warnings.Add(
        "measure.warm: a measurement would find weights in the cache; the cost model "
        "prices cold ones");
  } else if (campaign.measure.warm) {
    warnings.Add("warm: one layer in a loop, weights may come from the cache");
  }
  if (campaign.measure.zeros) {
    warnings.Add("zero data instead of random: power and clocks may differ from serving");
  }
}

}  // namespace

std::map<std::string, std::string> EnvironmentOf(const RankingContext& context) {
  std::map<std::string, std::vector<std::string>> values;
  const auto add = [&values](const std::string& key, const std::string& value) {
    std::vector<std::string>& list = values[key];
    if (!value.empty() && std::find(list.begin(), list.end(), value) == list.end()) {
      list.push_back(value);
    }
  };
  const Campaign& campaign = context.campaign();
  const Machine& machine = context.results.machine;
  add("machine", campaign.machine_auto ? machine.name : campaign.machine.name);
  for (const std::string& override : campaign.overrides) {
    add("set", override);  // What the source file does not say.
  }
  add("device", machine.device_name);
  add("backend", machine.backend);
  add("model", campaign.model.name);
  add("baseline_plan", PlanHash(campaign.baseline));
  for (const Point& point : campaign.points) {
    add("routing", point.routing.LabelWithSeed());
  }
  for (const PooledTrial& trial : context.trials) {
    for (const AttemptRecord* attempt : trial.attempts) {
      const AttemptResult& result = attempt->result;
      for (const auto& [key, value] : result.environment) {
        if (key != kCpuShareElsewhere) {  // Of each attempt another; a warning says the most.
          add(key, value);
        }
      }
      add("data_seed", result.data_seed == 0 ? "" : absl::StrCat(result.data_seed));
      add("breakdown", result.breakdown_method);
      add("note", result.effective_note);
    }
  }
  std::map<std::string, std::string> environment;
  for (auto& [key, list] : values) {
    const size_t num_values = list.size();
    if (num_values == 0) {
      continue;
    }
    list.resize(std::min(num_values, kMostValues));
    environment[key] = absl::StrJoin(list, " | ");
    if (num_values > kMostValues) {
      absl::StrAppend(&environment[key], " | and ", num_values - kMostValues, " more");
    }
  }
  return environment;
}

std::vector<std::string> WarningsOf(const RankingContext& context) {
  WarningList warnings;
  AddUnusedGpus(context, warnings);
  AddHostLoad(context, warnings);
  AddBaseline(context, warnings);
  for (std::string& warning : DriftWarnings(context.campaign(), context.baseline)) {
    warnings.Add(std::move(warning));
  }
  AddChangedEnvironment(context, warnings);
  AddTrials(context, warnings);
  AddQuarantines(context.results, warnings);
  AddCampaign(context.campaign(), warnings);
  // Of `auto` before a worker came, nothing is known yet.
  const Machine& machine = context.results.machine;
  if (!context.campaign().machine_auto || !machine.device_name.empty()) {
    if (std::string warning = MissingBandwidthWarning(machine); !warning.empty()) {
      warnings.Add(std::move(warning));
    }
  }
  return warnings.Take();
}

namespace {

// Nothing measures how many drafts are accepted: weights are random.
void AddAcceptances(const Campaign& campaign, std::vector<std::string>& assumptions) {
  std::map<double, std::set<std::string>> ids_of;
  const auto add = [&ids_of](const std::string& id, const Plan& plan) {
    if (plan.speculative.draft_tokens > 0) {
      ids_of[plan.speculative.acceptance].insert(id);
    }
  };
  add(kBaselineId, campaign.baseline);
  for (const Intervention& one : campaign.interventions) {
    for (const Choice& choice : ChoicesOf(one)) {
      const absl::StatusOr<Plan> plan = VariantPlan(campaign, one, choice);
      if (plan.ok() && plan->speculative != campaign.baseline.speculative) {
        add(one.id, *plan);
      }
    }
  }
  for (const auto& [acceptance, ids] : ids_of) {
    assumptions.push_back(absl::StrFormat(
        "speculation: a draft is accepted with a chance of %g (%s): as the campaign "
        "says, not measured",
        acceptance, absl::StrJoin(ids, ", ")));
  }
}

}  // namespace

std::string MissingBandwidthWarning(const Machine& machine) {
  if (!machine.cold_read.empty() || machine.peak_bandwidth_gb_per_s.value_or(0) > 0) {
    return "";
  }
  return absl::StrCat("machine ", machine.name,
                      " has no memory bandwidth (peak_bandwidth_gb_per_s or cold_read): reading "
                      "counts as taking no time, so ceilings are too high, little is pruned, and "
                      "nothing too fast to be true is caught");
}

std::vector<std::string> AssumptionsOf(const Campaign& campaign) {
  std::vector<std::string> assumptions;
  assumptions.push_back(absl::StrFormat(
      "chance that an intervention survives production: low risk %.2f, medium %.2f, high %.2f",
      ChanceOfSuccess(Risk::kLow), ChanceOfSuccess(Risk::kMedium), ChanceOfSuccess(Risk::kHigh)));
  assumptions.push_back(absl::StrFormat("an engineer-hour costs %g GPU-hours",
                                        campaign.economics.engineer_hour_in_gpu_hours));
  if (campaign.economics.gpu_hours.has_value()) {
    assumptions.push_back(absl::StrFormat("%g GPU-hours of serving are to be saved from",
                                          *campaign.economics.gpu_hours));
  } else {
    assumptions.push_back("economics.gpu_hours is not given: no net gain");
  }
  AddAcceptances(campaign, assumptions);
  if (std::any_of(campaign.interventions.begin(), campaign.interventions.end(),
                  [](const Intervention& one) { return one.quality == Quality::kLossy; })) {
    assumptions.push_back(
        "errors of lossy interventions are those of random weights: they say that an output "
        "changes, "
        "not by how much the model's answers do");
  }
  for (const std::string& assumed : campaign.model.assumed) {
    assumptions.push_back(absl::StrCat("model: ", assumed));
  }
  return assumptions;
}

}  // namespace lastflop
