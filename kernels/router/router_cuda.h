#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "step/shapes.h"

namespace lastflop {

// Scratch of LaunchRouter, 16-byte aligned, any content; 0 without opportunistic_keep.
int64_t RouterCudaWorkspaceBytes(const RouterShape& shape);

// Enqueues the choice of experts, as kernels/router/router.h has it: `scores` [num_tokens,
// num_experts] fp32, `bias` [num_experts] fp32 or null, `expert_ids` and `weights` [num_tokens,
// top_k]; device memory. Equal values choose the lower index. One launch; two with
// opportunistic_keep below top_k: who is in the batch comes first. InvalidArgument: sizes out of
// range (as ValidateRouter; and has_bias with a null bias). Internal when a launch fails.
absl::Status LaunchRouter(const RouterShape& shape, const float* scores, const float* bias,
                          int32_t* expert_ids, float* weights, void* workspace,
                          cudaStream_t stream);

}  // namespace lastflop
