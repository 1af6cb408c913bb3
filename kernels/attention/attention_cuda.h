#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention/kv_cache_cuda.h"
#include "step/shapes.h"

// Attention on the device, as kernels/attention/attention.h has it (widths and layouts of query and
// out are there): one launch. Query heads of a KV head are the rows of a tensor-core product and
// share each read of the cache; the context is cut into chunks so that all SMs work at batch 1, and
// the last block of a row group merges the chunks.
namespace lastflop {

// Scratch that a launch needs: partial results, and counters by which blocks of one row group find
// out who is last.
struct AttentionCudaWorkspace {
  void* partials = nullptr;      // AttentionCudaWorkspaceBytes, 16-byte aligned; any content.
  uint32_t* counters = nullptr;  // AttentionCudaNumCounters; zero before the first launch. Every
                                 // launch that ends leaves them zero. Not for launches that may
                                 // overlap; never poison them.
};

// Ok when the kernel takes the shape. InvalidArgument: sizes out of range. Unimplemented: widths
// that it has no build for, with those that it has.
absl::Status CheckAttentionCuda(const AttentionShape& shape);

// `num_sms`: multiprocessors of the device, the same number for all three.
int64_t AttentionCudaWorkspaceBytes(const AttentionShape& shape, int num_sms);
int64_t AttentionCudaNumCounters(const AttentionShape& shape, int num_sms);

// The new tokens' keys and values are in the cache already. Pointers are device memory, 16-byte
// aligned. gqa: `query` is the qkv tensor. Errors as CheckAttentionCuda; Internal when the launch
// fails.
absl::Status LaunchAttention(const AttentionShape& shape, int num_sms, const __nv_bfloat16* query,
                             const DeviceKvCache& cache, __nv_bfloat16* out,
                             const AttentionCudaWorkspace& workspace, cudaStream_t stream);

// Plain loops in fp32, a block a head of a token: for checks at sizes that AttentionReference would
// take minutes for. `out` is fp32, [num_tokens, num_heads, value width]; `scores` is scratch of
// AttentionReferenceBytes.
int64_t AttentionReferenceBytes(const AttentionShape& shape);
absl::Status LaunchAttentionReference(const AttentionShape& shape, const __nv_bfloat16* query,
                                      const DeviceKvCache& cache, float* out, float* scores,
                                      cudaStream_t stream);

}  // namespace lastflop
