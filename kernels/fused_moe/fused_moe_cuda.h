#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "step/shapes.h"

// Fused MoE on the device: one persistent launch from the routing to the combined output
// (kernels/fused_moe/fused_moe.h says what it computes; it makes its own pair list).
namespace lastflop {

struct FusedMoeCudaConfig {
  int stages = 0;         // Of a warp's ring: 2, 3, 4 or 6; 0 chooses.
  int blocks_per_sm = 0;  // Persistent blocks a multiprocessor; 0 chooses.
};

// Device memory, 256-byte aligned. All of it outlives the work.
struct FusedMoeTensors {
  const void* gate_up = nullptr;          // Panels, CudaRowOrder::kGateAndUp.
  const void* down = nullptr;             // Panels, CudaRowOrder::kPlain.
  const __nv_bfloat16* in = nullptr;      // [num_tokens, hidden_size]
  const __nv_bfloat16* shared = nullptr;  // [num_tokens, hidden_size]; null unless add_shared.
  const int32_t* expert_ids = nullptr;    // [num_tokens, top_k], of the model; -1: slot not used.
  const float* expert_weights = nullptr;  // [num_tokens, top_k]
  __nv_bfloat16* out = nullptr;           // [num_tokens, hidden_size]
  void* workspace = nullptr;  // FusedMoeCudaWorkspaceBytes; zeros before its first launch; used by
                              // one launch at a time.
  int64_t first_expert = 0;   // Of the rank.
};

// Unimplemented: a format, tile_order or GPU without a build. InvalidArgument: sizes out of range.
// ResourceExhausted: more shared memory than the current device has; the message has both numbers.
absl::Status CheckFusedMoeCuda(const FusedMoeShape& shape, const FusedMoeCudaConfig& config);

int64_t FusedMoeCudaWorkspaceBytes(const FusedMoeShape& shape);

// Enqueues the kernel on `stream`, cooperatively: all blocks are resident or the launch fails. Does
// not wait; can be captured in a graph.
absl::Status LaunchFusedMoeCuda(const FusedMoeShape& shape, const FusedMoeTensors& tensors,
                                const FusedMoeCudaConfig& config, cudaStream_t stream);

}  // namespace lastflop
