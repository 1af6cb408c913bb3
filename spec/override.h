#pragma once

#include <string>
#include <vector>

#include "spec/diagnostics.h"
#include "spec/yaml_value.h"

namespace lastflop {

// Changes the tree of a campaign as `--set path=value` says, before anything is read from it, so
// that an override is validated as if the file said so. `overrides` are those of `diagnostics`, in
// order; the last one of a path wins. A path is that of messages: `measure.max_time`,
// `workload.points[2].batch`, `baseline.moe.kernel`, `interventions[0].effort` or, by id,
// `interventions.expert-parallel.effort`. Maps that are missing on the way are made. The value is
// YAML: `64`, `{low: 1h, likely: 2h, high: 3h}`.
void ApplyOverrides(const std::vector<std::string>& overrides, YamlValue& root,
                    Diagnostics& diagnostics);

}  // namespace lastflop
