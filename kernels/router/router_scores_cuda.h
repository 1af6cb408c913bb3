#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "step/router_score_plan.h"

namespace lastflop {

// Enqueues one draw's router scores of all layers of `plan`: scores [plan.num_layers(), num_tokens,
// num_experts] fp32, equal to MakeRouterScores() of each layer but for one grid step (1 / 4096)
// where the logarithms of host and device round differently. `tables` is plan.tables in device
// memory, copied once. One launch; not for capture: the draw is a number of the call.
// InvalidArgument: more than 4096 experts, sizes out of range. Internal when the launch fails.
absl::Status LaunchRouterScores(const RouterScorePlan& plan, const void* tables, int64_t num_tokens,
                                int64_t draw, float* scores, cudaStream_t stream);

}  // namespace lastflop
