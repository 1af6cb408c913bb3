#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/panel.h"
#include "kernels/cuda/weight_slice.h"

// Random weights, made on the device, and reference products with weights that are evaluated from
// TrueWeight where they are used. Pointers are device memory, 256-byte aligned, and outlive the
// work. Launchers enqueue on `stream`, do not wait, and can be captured in a graph.
namespace lastflop {

// InvalidArgument when the slice does not lie within the tensor (the message says which field).
absl::Status CheckCudaSlice(const CudaWeightSlice& slice);

// Writes the slice as plain rows, `out`[num_matrices, rows, cols] bf16: for cuBLASLt, tables, gains
// and biases. InvalidArgument for a slice that is not bf16.
absl::Status LaunchFillRows(const CudaWeightSlice& slice, __nv_bfloat16* out, cudaStream_t stream);

// InvalidArgument: sizes that panels do not take. Rows are a multiple of 16 (kGateAndUp: two parts
// of the same size, a multiple of 8), cols of PanelColumnUnit().
absl::Status CheckPanels(const CudaWeightSlice& slice, CudaRowOrder order);

// Writes the slice as panels (kernels/cuda/panel.h), PanelBytes(slice) at `out`. 71 GB take a few
// seconds.
absl::Status LaunchFillPanels(const CudaWeightSlice& slice, CudaRowOrder order, void* out,
                              cudaStream_t stream);

// out[t, i] = sum_k in[t * in_stride + k] * weight[matrix, out_features[i], k], in fp32 by plain
// loops, with the weights as the format stores them and without a packed copy.
// `out_features` is device memory [num_features]: rows of the slice, parts in order; null: all.
// `out` is [num_tokens, num_features].
absl::Status LaunchReferenceGemm(const CudaWeightSlice& slice, int64_t matrix,
                                 const __nv_bfloat16* in, int64_t in_stride, int64_t num_tokens,
                                 const int64_t* out_features, int64_t num_features, float* out,
                                 cudaStream_t stream);

}  // namespace lastflop
