#pragma once

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "kernels/fused_moe/fused_moe.cuh"

namespace lastflop {

struct FusedMoeConfig {
  int stages = 3;         // Of a warp's ring: 2, 3, 4 or 6.
  int blocks_per_sm = 2;  // Persistent blocks a multiprocessor; fewer when memory forces it.
};

// Whether the kernel runs this shape on the current device. InvalidArgument or ResourceExhausted
// say which limit is passed and by how much.
absl::Status CheckFusedMoe(const FusedMoeArguments& arguments, const FusedMoeConfig& config);

// Enqueues the kernel on `stream`, cooperatively: all blocks are resident or the launch fails.
// Pointers are device memory, 16-byte aligned (panels 64), and outlive the work. `barrier` was
// zero before the first launch with this grid and is used by one launch at a time.
absl::Status LaunchFusedMoe(const FusedMoeArguments& arguments, const FusedMoeConfig& config,
                            cudaStream_t stream);

}  // namespace lastflop
