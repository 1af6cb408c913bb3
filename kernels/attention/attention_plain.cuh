#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "kernels/attention/attention_split.cuh"
#include "kernels/cuda/ptx.cuh"

// Attention by plain loops in fp32: a block a row, for the widths that have no other build and as a
// reference on the device.
namespace lastflop::attention {

inline constexpr int kPlainThreads = 128;
inline constexpr int kPlainMaxWidth = 1024;
inline constexpr int kPlainValues = kPlainMaxWidth / kPlainThreads;  // A thread.

__device__ inline float CacheValue(const __nv_bfloat16* cache, int64_t i) {
  return __bfloat162float(cache[i]);
}
__device__ inline float CacheValue(const __nv_fp8_storage_t* cache, int64_t i) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(cache[i], __NV_E4M3);
  return __half2float(__half(half));
}
__device__ inline void StoreOut(float value, float* out) { *out = value; }
__device__ inline void StoreOut(float value, __nv_bfloat16* out) {
  *out = __float2bfloat16_rn(value);
}

// Largest (kMax) or sum of a value over the block; `scratch` has a float a warp.
template <bool kMax>
__device__ float BlockReduce(float value, float* scratch) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    value = kMax ? fmaxf(value, other) : value + other;
  }
  __syncthreads();
  scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
  for (int w = 1; w < kPlainThreads / 32; ++w) {
    value = kMax ? fmaxf(value, scratch[w]) : value + scratch[w];
  }
  return value;
}

// Positions are taken kPlainThreads at a time, a thread one of them for the scores, with the online
// softmax between. Block (KV head of a sequence, row).
template <typename Cache, typename Out>
__global__ void __launch_bounds__(kPlainThreads)
    PlainKernel(const Split split, const __nv_bfloat16* query, const Cache* keys,
                const Cache* values, int64_t cache_stride, int64_t head_stride, Out* out) {
  __shared__ float row_query[kPlainMaxWidth];
  __shared__ float weights[kPlainThreads];
  __shared__ float scratch[kPlainThreads / 32];
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int sequence = static_cast<int>(blockIdx.x) / split.num_kv_heads;
  const int kv_head = static_cast<int>(blockIdx.x) % split.num_kv_heads;
  const Row row(split, sequence, kv_head, static_cast<int>(blockIdx.y));
  const int64_t base =
      static_cast<int64_t>(sequence) * split.positions * cache_stride + kv_head * head_stride;
  for (int d = threadIdx.x; d < split.key_width; d += kPlainThreads) {
    row_query[d] = __bfloat162float(query[row.query_at + d]);
  }
  __syncthreads();
  float sums[kPlainValues] = {};
  float max = -INFINITY;
  float sum = 0;
  for (int first = 0; first < row.num_visible; first += kPlainThreads) {
    const int position = first + static_cast<int>(threadIdx.x);
    float score = -INFINITY;
    if (position < row.num_visible) {
      const int64_t at = base + position * cache_stride;
      score = 0;
      for (int d = 0; d < split.key_width; ++d) {
        score += row_query[d] * CacheValue(keys, at + d);
      }
      score *= split.scale_log2;
    }
    const float new_max = fmaxf(max, BlockReduce<true>(score, scratch));
    const float decay = exp2f(max - new_max);
    const float weight = exp2f(score - new_max);
    weights[threadIdx.x] = weight;
    sum = sum * decay + BlockReduce<false>(weight, scratch);
    max = new_max;
    const int count = min(kPlainThreads, row.num_visible - first);
#pragma unroll
    for (int k = 0; k < kPlainValues; ++k) {
      const int d = k * kPlainThreads + static_cast<int>(threadIdx.x);
      if (d < split.value_width) {
        float value = sums[k] * decay;
        for (int p = 0; p < count; ++p) {
          value += weights[p] * CacheValue(values, base + (first + p) * cache_stride + d);
        }
        sums[k] = value;
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < kPlainValues; ++k) {
    const int d = k * kPlainThreads + static_cast<int>(threadIdx.x);
    if (d < split.value_width) {
      StoreOut(sums[k] / sum, out + row.out_at + d);
    }
  }
}

}  // namespace lastflop::attention
