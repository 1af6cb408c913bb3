#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/permute/permute_cuda.h"
#include "step/shapes.h"

namespace lastflop {

// InvalidArgument: intermediate_size that is not a multiple of 8; padded rows that are no pairs.
absl::Status CheckSwigluCuda(const ActivationShape& shape);

// kernels/swiglu/swiglu.h on the device. `pairs` is null unless rows_are_pairs: then only as many
// rows as there are pairs are read and written; with is_padded those that LaunchPadRows filled.
// Enqueues on `stream`; does not wait; can be captured in a graph.
absl::Status LaunchSwiglu(const ActivationShape& shape, const CudaPairs* pairs,
                          const __nv_bfloat16* in, __nv_bfloat16* out, cudaStream_t stream);

}  // namespace lastflop
