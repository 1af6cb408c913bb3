#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/permute/permute_cuda.h"
#include "step/shapes.h"

namespace lastflop {

// Unimplemented or InvalidArgument for weights that are not int4 or do not fill panels.
absl::Status CheckDequantCuda(const DequantShape& shape);

// Writes the int4 panels of every expert that has pairs as bf16 panels (kernels/cuda/panel.h) of
// the same rows and columns: kernels/dequant/dequant.h. Other experts' place in `out` keeps what it
// held. Enqueues on `stream`; does not wait; can be captured in a graph.
absl::Status LaunchDequant(const DequantShape& shape, const CudaPairs& pairs, const void* panels,
                           void* out, cudaStream_t stream);

}  // namespace lastflop
