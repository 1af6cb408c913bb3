#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "kernels/permute/permute_cuda.h"
#include "step/shapes.h"

// Tokens copied to the padded rows of their experts, for products that are one batch over experts
// (moe.kernel: cublaslt): PadShape says what is where.
namespace lastflop {

// InvalidArgument: hidden_size that is not a multiple of 8, or fewer rows of an expert than it may
// have pairs. Unimplemented: more rows than 31 bits count.
absl::Status CheckPadRowsCuda(const PadShape& shape);

// Fills the pairs' rows of `out` from `in` [num_tokens, hidden_size] and `pairs.padded_row` with
// where pairs are: row e * padded_rows + i of pair i of expert e. `pairs` was placed for the same
// num_tokens, top_k and num_local_experts. Enqueues on `stream`; does not wait; can be captured in
// a graph.
absl::Status LaunchPadRows(const PadShape& shape, const CudaPairs& pairs, const __nv_bfloat16* in,
                           __nv_bfloat16* out, cudaStream_t stream);

}  // namespace lastflop
