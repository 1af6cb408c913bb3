#include "spec/campaign_reader.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "spec/campaign_checks.h"
#include "spec/diagnostics.h"
#include "spec/intervention_reader.h"
#include "spec/machine_reader.h"
#include "spec/map_reader.h"
#include "spec/override.h"
#include "spec/plan_reader.h"
#include "spec/scalars.h"
#include "spec/text_file.h"
#include "spec/workload_reader.h"
#include "spec/yaml_parser.h"

namespace lastflop {
namespace {

constexpr int64_t kFewLaunches = 3;  // Fewer do not show the spread between processes.
constexpr NumberRange kShareOfOne{
    .low = 0, .high = 1, .low_exclusive = true, .high_exclusive = true};

MeasureOptions ReadMeasure(const YamlValue& value, Diagnostics& diagnostics,
                           std::vector<std::string>& warnings) {
  constexpr int64_t kMostLaunches = 1000;
  constexpr int64_t kMostPairs = 1'000'000;
  MeasureOptions measure;
  MapReader reader(value, "measure", diagnostics);
  reader.Optional("launches", measure.launches, IntegerIn(1, kMostLaunches));
  reader.Optional("min_pairs", measure.min_pairs, IntegerIn(1, kMostPairs));
  reader.Optional("half_width", measure.half_width, FractionIn(kShareOfOne));
  reader.Optional("max_time", measure.max_time, ParseDuration);
  // Beyond it reports would round it to certainty.
  reader.Optional("confidence", measure.confidence,
                  FractionIn({.low = 0, .high = 0.9999, .low_exclusive = true}));
  reader.Optional("min_effect", measure.min_effect,
                  FractionIn({.low = 0, .high = 1, .high_exclusive = true}));
  reader.Optional("max_attempts", measure.max_attempts, IntegerIn(1, kMostLaunches));
  reader.Optional("warm", measure.warm, ParseBool);
  reader.Optional("zeros", measure.zeros, ParseBool);
  reader.Optional("breakdown", measure.breakdown, ParseBool);
  reader.Optional("prune", measure.prune, ParseBool);
  reader.Finish();
  if (measure.launches < kFewLaunches) {
    warnings.push_back(absl::StrCat("measure.launches is ", measure.launches, ": fewer than ",
                                    kFewLaunches, " do not show what differs between processes"));
  }
  return measure;
}

Budget ReadBudget(const YamlValue& value, Diagnostics& diagnostics) {
  constexpr int64_t kMostRounds = 100;
  Budget budget;
  MapReader reader(value, "budget", diagnostics);
  reader.Optional("effort", budget.effort_hours, ParseEffortHours);
  reader.Optional("wall", budget.wall, ParseDuration);
  reader.Optional("max_error", budget.max_error, FractionIn(kNotNegative));
  reader.Optional("rounds", budget.rounds, IntegerIn(1, kMostRounds));
  reader.Finish();
  return budget;
}

constexpr double kMostGpuHours = 1e12;  // 100 million GPUs for a year.

Economics ReadEconomics(const YamlValue& value, Diagnostics& diagnostics) {
  Economics economics;
  MapReader reader(value, "economics", diagnostics);
  reader.Optional("gpu_hours", economics.gpu_hours,
                  NumberIn({.low = 0, .high = kMostGpuHours, .low_exclusive = true}));
  reader.Optional("engineer_hour_in_gpu_hours", economics.engineer_hour_in_gpu_hours,
                  NumberIn({.low = 0, .high = kMostGpuHours}));
  reader.Finish();
  return economics;
}

// One campaign file on its way into a Campaign.
class CampaignBuilder {
 public:
  CampaignBuilder(const YamlValue& root, const std::string& directory, const CampaignHooks& hooks,
                  Diagnostics& diagnostics)
      : root_(root), directory_(directory), hooks_(hooks), diagnostics_(diagnostics) {}

  Campaign Build() {
    MapReader reader(root_, "", diagnostics_);
    if (!reader.is_map()) {
      return {};
    }
    int64_t schema = 1;
    reader.Required("schema", schema, IntegerIn(1, 1));
    campaign_.schema = static_cast<int>(schema);
    reader.Required("name", campaign_.name, ParseText);
    reader.Optional("question", campaign_.question, ParseText);
    ReadModel(reader.Required("model"));
    ReadMachine(reader.Optional("machine"));
    ReadBaseline(reader.Optional("baseline"));
    const YamlValue* workload = reader.Required("workload");
    if (workload != nullptr) {
      campaign_.points = ReadWorkload(*workload, directory_, diagnostics_, campaign_.warnings);
    }
    if (const YamlValue* measure = reader.Optional("measure")) {
      campaign_.measure = ReadMeasure(*measure, diagnostics_, campaign_.warnings);
    }
    if (const YamlValue* budget = reader.Optional("budget")) {
      campaign_.budget = ReadBudget(*budget, diagnostics_);
    }
    if (const YamlValue* economics = reader.Optional("economics")) {
      campaign_.economics = ReadEconomics(*economics, diagnostics_);
    }
    reader.Optional("fidelity", campaign_.fidelity, ParseWord<Fidelity>);
    ReadInterventionList(reader.Optional("interventions"));
    reader.Finish();
    if (diagnostics_.ok()) {
      CheckTraces(*workload, campaign_.points, campaign_.model, diagnostics_);
      CheckCampaign(hooks_, root_, sources_, campaign_, diagnostics_);
    }
    return std::move(campaign_);
  }

 private:
  // `model: PATH`, or `model: {config: PATH, layers: all | N}`.
  void ReadModel(const YamlValue* value) {
    if (value == nullptr) {
      return;
    }
    if (value->kind == YamlValue::Kind::kScalar) {
      return ReadModelFile(*value, "model");
    }
    MapReader reader(*value, "model", diagnostics_);
    if (const YamlValue* config = reader.Required("config")) {
      ReadModelFile(*config, "model.config");
    }
    const YamlValue* layers = reader.Optional("layers");
    if (layers != nullptr && !(layers->kind == YamlValue::Kind::kScalar && layers->text == "all")) {
      ReadLayers(*layers);
    }
    reader.Finish();
  }

  void ReadModelFile(const YamlValue& value, const std::string& path) {
    const absl::StatusOr<std::string> name = ParseText(value);
    if (!name.ok()) {
      return diagnostics_.Error(value.location, path, name.status().message());
    }
    absl::StatusOr<Model> model =
        hooks_.read_model((std::filesystem::path(directory_) / *name).string());
    if (!model.ok()) {
      return diagnostics_.Nested(value.location, path, model.status());
    }
    campaign_.model = *std::move(model);
    has_model_ = true;
  }

  void ReadLayers(const YamlValue& value) {
    const absl::StatusOr<int64_t> layers = IntegerIn(1)(value);
    if (!layers.ok()) {
      return diagnostics_.Error(value.location, "model.layers",
                                absl::StrCat(layers.status().message(), ", or all"));
    }
    if (has_model_ && *layers > campaign_.model.num_moe_layers()) {
      return diagnostics_.Error(
          value.location, "model.layers",
          absl::StrCat(*layers, " layers cannot be kept of the ", campaign_.model.num_moe_layers(),
                       " MoE layers that the model has"));
    }
    campaign_.layers_kept = *layers;
  }

  void ReadMachine(const YamlValue* value) {
    campaign_.machine.name = "auto";
    if (value == nullptr) {
      return;
    }
    const absl::StatusOr<std::string> name = ParseText(*value);
    if (!name.ok()) {
      return diagnostics_.Error(value->location, "machine", name.status().message());
    }
    if (*name == "auto") {
      return;
    }
    const absl::StatusOr<std::string> file =
        FindMachineFile(*name, directory_, hooks_.machines_directory);
    absl::StatusOr<Machine> machine = file.ok() ? ReadMachineFile(*file) : file.status();
    if (!machine.ok()) {
      return diagnostics_.Nested(value->location, "machine", machine.status());
    }
    campaign_.machine_auto = false;
    campaign_.machine = *std::move(machine);
  }

  void ReadBaseline(const YamlValue* value) {
    if (value == nullptr) {
      return;
    }
    const std::vector<SettingSource> settings =
        ReadPlanSettings(*value, "baseline", Plan{}, diagnostics_);
    CheckAcceptance(settings, {}, Plan{}, diagnostics_);
    for (const SettingSource& source : settings) {
      // The reader has tried the value already.
      const absl::Status status =
          SetPlanField(source.setting.path, source.setting.value, campaign_.baseline);
      if (!status.ok()) {
        diagnostics_.Error(source.location, source.path, status.message());
      }
    }
    if (const absl::Status status = CheckNothingIdle(campaign_.baseline); !status.ok()) {
      diagnostics_.Error(value->location, "baseline", status.message());
    }
  }

  void ReadInterventionList(const YamlValue* value) {
    if (value != nullptr) {
      sources_ = ReadInterventions(*value, campaign_.baseline, diagnostics_, campaign_.warnings);
    }
    if (sources_.empty()) {
      campaign_.warnings.push_back("there are no interventions: only the baseline is measured");
    }
    for (const InterventionSource& source : sources_) {
      campaign_.interventions.push_back(source.intervention);
    }
  }

  const YamlValue& root_;  // Outlives this.
  const std::string directory_;
  const CampaignHooks& hooks_;  // Outlives this.
  Diagnostics& diagnostics_;    // Outlives this.
  Campaign campaign_;
  bool has_model_ = false;
  std::vector<InterventionSource> sources_;
};

}  // namespace

absl::StatusOr<Campaign> ReadCampaign(absl::string_view text, const std::string& file_name,
                                      const std::string& directory,
                                      const std::vector<std::string>& overrides,
                                      const CampaignHooks& hooks) {
  Diagnostics diagnostics(file_name, overrides);
  YamlValue root = ParseYaml(text, diagnostics);
  LASTFLOP_RETURN_IF_ERROR(diagnostics.ToStatus());
  if (root.kind == YamlValue::Kind::kMap) {
    ApplyOverrides(overrides, root, diagnostics);
  }
  Campaign campaign = CampaignBuilder(root, directory, hooks, diagnostics).Build();
  LASTFLOP_RETURN_IF_ERROR(diagnostics.ToStatus());
  campaign.overrides = overrides;
  return campaign;
}

absl::StatusOr<Campaign> ReadCampaignFile(const std::string& path,
                                          const std::vector<std::string>& overrides,
                                          const CampaignHooks& hooks) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxCampaignBytes));
  return ReadCampaign(text, path, std::filesystem::path(path).parent_path().string(), overrides,
                      hooks);
}

}  // namespace lastflop
