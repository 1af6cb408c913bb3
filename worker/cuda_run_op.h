#pragma once

#include "absl/status/status.h"
#include "worker/cuda_step.h"

namespace lastflop {

// Enqueues one op of the step on the context's stream. Can be captured in a graph. Of a shard,
// collectives enqueue nothing.
absl::Status RunCudaOp(CudaStep& step, CudaOp& op, CudaContext& context);

// Whether the step makes pair lists on the device: fused MoE kernels make their own.
bool HasDevicePairs(const CudaStep& step);

// Whether the op enqueues anything: collectives of a shard do not, nor does a permutation that no
// kernel reads.
bool RunsOnDevice(const CudaStep& step, const Op& op);

// Whether its collectives run over peer memory.
bool UsesPeerMemory(const CudaStep& step);

// Lets each all-reduce of the step run inside the norm after it (collectives.fuse_norm).
// Unimplemented, with the reason, for an all-reduce without such a norm or rows that do not fit.
absl::Status FuseNorms(CudaStep& step, const CudaPeerCommunicator& peers);

}  // namespace lastflop
