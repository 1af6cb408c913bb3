#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/permute/permute_cuda.h"
#include "step/shapes.h"

namespace lastflop {

// InvalidArgument: hidden_size that is not a multiple of 8, or a top_k above 32.
absl::Status CheckMoeCombineCuda(const CombineShape& shape);

// kernels/moe_combine/moe_combine.h on the device. `shared` is null unless the shape adds it.
// `out` may be `shared`. With is_padded `in` has the rows that LaunchPadRows filled. Enqueues on
// `stream`; does not wait; can be captured in a graph.
absl::Status LaunchMoeCombine(const CombineShape& shape, const CudaPairs& pairs,
                              const __nv_bfloat16* in, const __nv_bfloat16* shared,
                              __nv_bfloat16* out, cudaStream_t stream);

}  // namespace lastflop
