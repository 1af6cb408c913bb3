#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/sample/sample.h"
#include "step/shapes.h"

// The greedy choice on the device, as kernels/sample/sample.h has it. Pointers are device memory,
// 16-byte aligned. InvalidArgument for sizes out of range; Internal when a launch fails.
namespace lastflop {

// Scratch of LaunchBestCandidates and LaunchSample, any content.
int64_t SampleCudaWorkspaceBytes(const SampleShape& shape);

// best[t] of logits[t, v] fp32, ids counted from vocab_begin: what a rank sends. Two launches.
absl::Status LaunchBestCandidates(const SampleShape& shape, const float* logits, Candidate* best,
                                  void* workspace, cudaStream_t stream);

// token_ids[t] from candidates [ranks, num_tokens] as an all-gather leaves them. One launch.
absl::Status LaunchChooseTokens(const SampleShape& shape, const Candidate* candidates,
                                int32_t* token_ids, cudaStream_t stream);

// Both at once where shape.ranks is 1. Two launches.
absl::Status LaunchSample(const SampleShape& shape, const float* logits, int32_t* token_ids,
                          void* workspace, cudaStream_t stream);

}  // namespace lastflop
