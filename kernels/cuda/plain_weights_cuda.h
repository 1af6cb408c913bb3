#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/cuda/weight_slice.h"

namespace lastflop {

// Writes the slice as checkpoints store it, row by row: plugin/lastflop_plugin.h says how each
// format lies; the values are those of panels (weights_random_cuda.h). `scales` is null for bf16.
// Both are device memory, 16-byte aligned. Enqueues and does not wait. InvalidArgument: columns
// that a group does not divide.
absl::Status LaunchFillPlainWeights(const CudaWeightSlice& slice, void* weights, void* scales,
                                    cudaStream_t stream);

}  // namespace lastflop
