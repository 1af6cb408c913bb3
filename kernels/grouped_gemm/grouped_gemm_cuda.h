#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/words.h"
#include "kernels/cuda/panel.h"
#include "kernels/permute/permute_cuda.h"
#include "step/shapes.h"

// Grouped GEMM on the device: kernels/grouped_gemm/grouped_gemm.h says what it computes;
// kernels/cuda/panel.h how the weights lie.
namespace lastflop {

struct GroupedGemmCudaConfig {
  // Order of the rows in the panels: kGateAndUp where the shape has swiglu. `out` has plain columns
  // in either case: gate first, then up.
  CudaRowOrder row_order = CudaRowOrder::kPlain;
  // Pairs and weights were complete before the kernel that precedes this one on the stream began:
  // on GPUs that can, weights are asked for while that kernel ends. True for down after gate_up (of
  // the same pairs), never right after LaunchPermute or LaunchDequant.
  bool early_weights = false;
  // L2 priority of the weights (moe.cache_hint).
  CacheHint cache_hint = CacheHint::kNone;
  // Stages of the ring through which weights stream; 0: as many as fit.
  int stages = 0;
  // Elements between bf16 rows of `in`, a multiple of 8; 0: in_features.
  int64_t in_stride = 0;
  // nvfp4: the scale of the tensor (kernels/fp4.h).
  float tensor_scale = 1;
};

// Unimplemented (with field and reason): a weight or activation format or GPU that has no build.
// InvalidArgument: sizes out of range, group_m below 0 or beside column_major. On the current
// device.
absl::Status CheckGroupedGemmCuda(const ExpertGemmShape& shape,
                                  const GroupedGemmCudaConfig& config);

// Enqueues the kernel on `stream`; does not wait; can be captured in a graph. `pairs` was placed
// for the same num_tokens, top_k and num_local_experts; its tile_tokens chooses the build.
// `panels` holds num_local_experts matrices [out_features, in_features]. `in` is bf16 [num_tokens,
// in_features] when gather_tokens, else [pairs, in_features]; with fp8 activations the same rows as
// LaunchQuantizeRows() writes them. `out` is [pairs, out_columns()]; rows
// past the real number of pairs are neither read nor written. All device memory, 256-byte aligned.
absl::Status LaunchGroupedGemm(const ExpertGemmShape& shape, const CudaPairs& pairs,
                               const void* panels, const void* in, __nv_bfloat16* out,
                               const GroupedGemmCudaConfig& config, cudaStream_t stream);

// The same by plain loops in fp32 with weights from the slice (rows(): out_features): writes the
// output features in `out_features` (device memory [num_features], null: all) to `out`[pairs,
// num_features]. InvalidArgument: a shape with swiglu, whose sums it would hide.
absl::Status LaunchGroupedGemmReference(const ExpertGemmShape& shape, const CudaPairs& pairs,
                                        const CudaWeightSlice& weights, const __nv_bfloat16* in,
                                        const int64_t* out_features, int64_t num_features,
                                        float* out, cudaStream_t stream);

}  // namespace lastflop
