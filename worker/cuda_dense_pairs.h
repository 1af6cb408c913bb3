#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "gpu/device_buffer.h"
#include "kernels/permute/permute_cuda.h"
#include "step/shapes.h"

// fp8 dense products run as those of one expert that all tokens go to.
namespace lastflop {

// The tokens of a dense product as the pairs of one expert. Move-only.
struct CudaDensePairs {
  DeviceBuffer memory;
  CudaPairs pairs;

  // All of `num_tokens`, in order. Waits for the device.
  static absl::StatusOr<CudaDensePairs> Create(int64_t num_tokens, cudaStream_t stream);
};

// `shape` as the product of that expert.
ExpertGemmShape OneExpertOf(const GemmShape& shape);

}  // namespace lastflop
