#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/campaign.h"
#include "common/plan.h"
#include "spec/diagnostics.h"
#include "spec/yaml_value.h"

// Plans in YAML: nested maps, dotted paths or both (`moe: {tile_order: x}`, `moe.tile_order: x`),
// flattened to the settings of PlanFields(). Choices that carry a number are maps too:
// `moe.expert_activation: {opportunistic: {keep: 4}}`, `overlap: {single_batch: {sms: 32}}`; what
// can be absent is switched off by `none` (`moe.l2_pin: none`).
namespace lastflop {

// A setting and where it was written.
struct SettingSource {
  FieldSetting setting;
  Location location;
  std::string path;  // In the file: "baseline.moe.kernel".
};

// The values of a `try` path.
struct SweepSource {
  std::string field;                // A PlanFields() path.
  std::vector<std::string> values;  // Canonical texts, each once, at least one.
  Location location;
  std::string path;
};

// Reads a map of plan fields; errors go to `diagnostics`. `process.env` is merged onto that of
// `base`, a variable without a value is taken out of it.
std::vector<SettingSource> ReadPlanSettings(const YamlValue& map, const std::string& path,
                                            const Plan& base, Diagnostics& diagnostics);

// Reads a `try` map: each field has a list of values.
std::vector<SweepSource> ReadSweeps(const YamlValue& map, const std::string& path, const Plan& base,
                                    Diagnostics& diagnostics);

// Reports drafts of which nobody said how many are accepted: `settings` or `sweeps` set them where
// `base` has none. None accepted is a finding that is asked for, not a default.
void CheckAcceptance(const std::vector<SettingSource>& settings,
                     const std::vector<SweepSource>& sweeps, const Plan& base,
                     Diagnostics& diagnostics);

// Whether a plan says something that nothing of it would use (the choice of experts to pin without
// a pin), or a number beyond all sense: InvalidArgument with the fields.
absl::Status CheckNothingIdle(const Plan& plan);

// Why `setting`, which `plan` has, changes nothing of a step of that plan (an all-reduce's
// algorithm where there is one rank); "" when it may.
std::string WhyIdle(const FieldSetting& setting, const Plan& plan);

}  // namespace lastflop
