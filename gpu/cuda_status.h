#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace lastflop {

// What a CUDA call says, as a status: ResourceExhausted when memory is short, Internal else, with
// the call's own name for the error. The runtime forgets the error, unless it is one that
// stays (IsStickyCudaError). `doing` is "launching rms_norm".
absl::Status CudaStatus(cudaError_t error, absl::string_view doing);

// Whether `error` leaves the process without a usable device: an illegal access, an assertion, a
// launch that timed out, a fault of memory or of a link.
bool IsStickyCudaError(cudaError_t error);

// The error of the last launch, if it had one, and forgets it.
absl::Status LastLaunchStatus(absl::string_view kernel);

#define LASTFLOP_CUDA_RETURN_IF_ERROR(expr, doing)                                            \
  do {                                                                                        \
    if (const cudaError_t lastflop_cuda_error = (expr); lastflop_cuda_error != cudaSuccess) { \
      return ::lastflop::CudaStatus(lastflop_cuda_error, doing);                              \
    }                                                                                         \
  } while (false)

}  // namespace lastflop
