#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

// Small device helpers of a step. Pointers are device memory, 16-byte aligned. InvalidArgument for
// sizes out of range; Internal when a launch fails.
namespace lastflop {

// out[r, c] += bias[c], rounded to out's type; out is [rows, cols].
absl::Status LaunchAddBias(int64_t rows, int64_t cols, const __nv_bfloat16* bias,
                           __nv_bfloat16* out, cudaStream_t stream);
absl::Status LaunchAddBias(int64_t rows, int64_t cols, const __nv_bfloat16* bias, float* out,
                           cudaStream_t stream);

// out[i] += in[i], summed in fp32 and rounded once.
absl::Status LaunchAdd(int64_t count, const __nv_bfloat16* in, __nv_bfloat16* out,
                       cudaStream_t stream);

}  // namespace lastflop
