#pragma once

#include <string>

#include "tests/e2e/program.h"

namespace lastflop {

// A campaign over a model so small that a trial takes milliseconds, and the model beside it.
// `interventions` is YAML under `interventions:`, indented by two; `measure` goes into the braces.
std::string WriteTinyCampaign(const TestFolder& folder, const std::string& interventions,
                              const std::string& measure =
                                  "launches: 2, min_pairs: 4, "
                                  "max_time: 100ms");

// Three that the CPU backend measures and one that it cannot run.
inline constexpr char kTinyInterventions[] = R"(
  - {id: fused, title: Fused kernel, tier: 2, effort: 1d, set: {moe.kernel: fused}}
  - {id: columns, title: Column-major tiles, tier: 2, effort: 2h, set: {moe.tile_order: column_major}}
  - {id: separate, title: Separate dequantization, tier: 1, effort: 1h, set: {moe.dequant: separate}}
  - {id: graphs, title: CUDA graphs, tier: 1, effort: 1h, set: {launch.graph: full}}
)";

}  // namespace lastflop
