#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/attention/kv_cache_cuda.h"
#include "step/shapes.h"

// Rotary embedding and the write of new keys and values into the cache, on the device, as
// kernels/rope/rope.h has them: one launch each. Pointers are device memory, 16-byte aligned.
// InvalidArgument for sizes out of range; Internal when a launch fails.
namespace lastflop {

// Cosines and sines of the positions of a shape: (cosine, sine) pairs, [query_tokens, rotary_dim /
// 2]. One table serves all layers of a plan at a point.
int64_t RopeTableBytes(const RopeShape& shape);

// Makes the table, on the device and in fp64. Once, before the step is captured.
absl::Status LaunchRopeTable(const RopeShape& shape, float2* table, cudaStream_t stream);

// gqa: turns query and key heads of `qkv` [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim]
// in place; writes turned keys and the values of the new tokens to the cache.
absl::Status LaunchRopeGqa(const RopeShape& shape, const float2* table, __nv_bfloat16* qkv,
                           const DeviceKvCache& cache, cudaStream_t stream);

// mla: turns the last qk_rope_head_dim elements of every head of `query` [num_tokens, num_heads,
// qk_nope + qk_rope] into the tail of `absorbed` [num_tokens, num_heads, kv_lora_rank + qk_rope];
// writes the last kv_lora_rank + qk_rope elements of each row of `latents` [num_tokens,
// latent_stride], the rope part turned, to cache.keys.
absl::Status LaunchRopeMla(const RopeShape& shape, const float2* table, const __nv_bfloat16* query,
                           const __nv_bfloat16* latents, int64_t latent_stride,
                           __nv_bfloat16* absorbed, const DeviceKvCache& cache,
                           cudaStream_t stream);

}  // namespace lastflop
