#pragma once

#include <string>
#include <vector>

#include "common/campaign.h"
#include "common/plan.h"
#include "spec/diagnostics.h"
#include "spec/plan_reader.h"
#include "spec/yaml_value.h"

namespace lastflop {

// An intervention and where its parts were written.
struct InterventionSource {
  Intervention intervention;
  Location location;
  std::string path;  // "interventions[3]"
  std::vector<SettingSource> settings;
  std::vector<SweepSource> sweeps;
  const YamlValue* value = nullptr;  // Outlives this.
};

// Reads the `interventions` of a campaign with that baseline. Refused: ids that are there twice,
// needs and excludes that are unknown, circular or at odds, patches that set nothing, sweeps of
// more than 64 choices. A patch that leaves the baseline as it is gives a warning and is kept.
std::vector<InterventionSource> ReadInterventions(const YamlValue& list, const Plan& baseline,
                                                  Diagnostics& diagnostics,
                                                  std::vector<std::string>& warnings);

}  // namespace lastflop
