#pragma once

#include <string>
#include <vector>

#include "common/campaign.h"
#include "spec/diagnostics.h"
#include "spec/yaml_value.h"

namespace lastflop {

// Reads the `workload` of a campaign that lies in `directory`: its routing and its points. Shares
// of time sum to 1, or none is given and they are equal, which is then a warning.
std::vector<Point> ReadWorkload(const YamlValue& value, const std::string& directory,
                                Diagnostics& diagnostics, std::vector<std::string>& warnings);

// Whether recorded popularity fits the model: as many experts, and one layer for all of
// the model's, or one for each of its layers or of its MoE layers.
void CheckTraces(const YamlValue& value, const std::vector<Point>& points, const Model& model,
                 Diagnostics& diagnostics);

}  // namespace lastflop
