#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention/kv_cache_cuda.h"
#include "step/shapes.h"

// Attention on the device, as kernels/attention/attention.h has it (widths and layouts of query and
// out are there). Query heads of a KV head are the rows of a tensor-core product and share each
// read of the cache. All context of all sequences is one list of tiles that is cut evenly over the
// SMs; what a cut divides is merged by a second, small launch.
//
// Builds: gqa with head_dim up to 128, mla with kv_lora_rank 512 and qk_rope_head_dim 64, each with
// bf16 and fp8 caches. Other widths run a plain loop, right and slow.
namespace lastflop {

// Ok when LaunchAttention takes the shape. InvalidArgument: sizes out of range.
absl::Status CheckAttentionCuda(const AttentionShape& shape);

// Bytes that LaunchAttention needs in `workspace`: any content, 16-byte aligned, not for launches
// that may overlap. `num_sms`: multiprocessors of the device, the same number in both calls.
int64_t AttentionCudaWorkspaceBytes(const AttentionShape& shape, int num_sms);

// The new tokens' keys and values are in the cache already. Pointers are device memory, 16-byte
// aligned. gqa: `query` is the qkv tensor. Errors as CheckAttentionCuda; Internal when a launch
// fails.
absl::Status LaunchAttention(const AttentionShape& shape, int num_sms, const __nv_bfloat16* query,
                             const DeviceKvCache& cache, __nv_bfloat16* out, void* workspace,
                             cudaStream_t stream);

// Plain loops in fp32, a block a head of a token: for checks at sizes that AttentionReference would
// take minutes for. `out` is fp32, [num_tokens, num_heads, value width].
absl::Status LaunchAttentionReference(const AttentionShape& shape, const __nv_bfloat16* query,
                                      const DeviceKvCache& cache, float* out, cudaStream_t stream);

}  // namespace lastflop
