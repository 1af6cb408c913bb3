#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

// What a device can do at best: the measured ends of floors and ceilings.
namespace lastflop {

// Enqueues a read of `bytes` of device memory (a multiple of 16) with every multiprocessor, in
// 16-byte loads that are not kept in L1; a sum goes to `sink` (4 bytes), so that nothing is left
// out. Can be captured in a graph.
absl::Status LaunchReadProbe(const void* data, int64_t bytes, uint32_t* sink, cudaStream_t stream);

// Fills with numbers that differ: compressible memory would read faster.
absl::Status LaunchFillProbe(void* data, int64_t bytes, cudaStream_t stream);

}  // namespace lastflop
