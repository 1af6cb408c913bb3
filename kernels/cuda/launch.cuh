#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "absl/status/status.h"
#include "gpu/cuda_status.h"

namespace lastflop {

// Launches a kernel that calls WaitForEarlierKernels() before it touches what earlier kernels read
// or write: on GPUs that can (sm_90 on), its start overlaps the end of the kernel before it.
template <typename... Parameters, typename... Arguments>
absl::Status LaunchOverlapping(const char* name, void (*kernel)(Parameters...), dim3 grid,
                               int threads, int64_t shared_bytes, cudaStream_t stream,
                               Arguments&&... arguments) {
  int device = 0;
  int major = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), name);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), name);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned int>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = major >= 9 ? 1 : 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaLaunchKernelEx(&config, kernel, Parameters(std::forward<Arguments>(arguments))...), name);
  return LastLaunchStatus(name);
}

}  // namespace lastflop
