#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "step/shapes.h"

// RMSNorm on the device, as kernels/rms_norm/rms_norm.h has it: one launch each. Pointers are
// device memory, 16-byte aligned. InvalidArgument for sizes out of range; Internal when the launch
// fails.
namespace lastflop {

// residual[t, i] = in[t, i] (+ residual[t, i] when add_residual), rounded to bf16; out = rmsnorm of
// the rounded residual * gain. All are [rows, size] (stride == size, one part); `out` may be `in`.
absl::Status LaunchRmsNorm(const NormShape& shape, const __nv_bfloat16* in, __nv_bfloat16* residual,
                           const __nv_bfloat16* gain, __nv_bfloat16* out, cudaStream_t stream);

// In place on shape.parts runs of shape.size elements from shape.offset on, of each row of `data`
// [rows, stride]. What lies outside the parts is left as it is.
absl::Status LaunchRmsNormParts(const NormShape& shape, __nv_bfloat16* data,
                                const __nv_bfloat16* gain, cudaStream_t stream);

}  // namespace lastflop
