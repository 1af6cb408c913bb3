#include <algorithm>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_ops.cuh"
#include "kernels/rope/rope.h"
#include "kernels/rope/rope_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 128;

__global__ void RopeTableKernel(RopeShape shape, float2* table) {
  const int64_t half = shape.rotary_dim / 2;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= shape.query_tokens * half) {
    return;
  }
  const auto position = static_cast<double>(shape.context + i / half);
  const double exponent = -static_cast<double>(i % half) / static_cast<double>(half);
  const double angle = position * pow(shape.theta, exponent);
  table[i] = make_float2(static_cast<float>(cos(angle)), static_cast<float>(sin(angle)));
}

// A run of a vector and the one half a vector later.
template <int kRun>
struct Turned {
  Bf16Run<kRun> first;
  Bf16Run<kRun> second;
};

template <int kRun>
__device__ Turned<kRun> Turn(const __nv_bfloat16* in, int64_t half, const float2* table) {
  const Bf16Run<kRun> first = Bf16Run<kRun>::Load(in);
  const Bf16Run<kRun> second = Bf16Run<kRun>::Load(in + half);
  Turned<kRun> turned;
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    const float2 t = table[j];
    turned.first.values[j] = RoundedToBf16(first.values[j] * t.x - second.values[j] * t.y);
    turned.second.values[j] = RoundedToBf16(second.values[j] * t.x + first.values[j] * t.y);
  }
  return turned;
}

// A token's places: row of the cache and of the table.
struct TokenPlace {
  int64_t cache_row;
  int64_t table_row;
};
__device__ TokenPlace PlaceOf(const RopeShape& shape, int64_t token) {
  const int64_t index = token % shape.query_tokens;
  const int64_t sequence = token / shape.query_tokens;
  return {.cache_row = sequence * (shape.context + shape.query_tokens) + shape.context + index,
          .table_row = index};
}

// Work of a token, in runs: the turned pairs of all query and key heads, then what of the keys is
// not turned, then the values. Query tails are not touched.
template <int kRun, typename T>
__global__ void RopeGqaKernel(RopeShape shape, const float2* table, __nv_bfloat16* qkv, T* keys,
                              T* values) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t token = blockIdx.x;
  const TokenPlace place = PlaceOf(shape, token);
  const int64_t half = shape.rotary_dim / 2;
  const int64_t dim = shape.head_dim;
  __nv_bfloat16* const row = qkv + token * (shape.num_heads + 2 * shape.num_kv_heads) * dim;
  const __nv_bfloat16* const key_row = row + shape.num_heads * dim;
  T* const key_out = keys + place.cache_row * shape.num_kv_heads * dim;
  T* const value_out = values + place.cache_row * shape.num_kv_heads * dim;
  const int64_t turned_runs = (shape.num_heads + shape.num_kv_heads) * half / kRun;
  const int64_t tail_runs = shape.num_kv_heads * (dim - shape.rotary_dim) / kRun;
  const int64_t value_runs = shape.num_kv_heads * dim / kRun;
  int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i < turned_runs) {
    const int64_t head = i * kRun / half;
    const int64_t d = i * kRun % half;
    __nv_bfloat16* const at = row + head * dim + d;
    const Turned<kRun> turned = Turn<kRun>(at, half, table + place.table_row * half + d);
    turned.first.Store(at);
    turned.second.Store(at + half);
    if (head >= shape.num_heads) {
      T* const to = key_out + (head - shape.num_heads) * dim + d;
      turned.first.Store(to);
      turned.second.Store(to + half);
    }
    return;
  }
  i -= turned_runs;
  if (i < tail_runs) {
    const int64_t tail = dim - shape.rotary_dim;
    const int64_t at = i * kRun / tail * dim + shape.rotary_dim + i * kRun % tail;
    Bf16Run<kRun>::Load(key_row + at).Store(key_out + at);
    return;
  }
  i -= tail_runs;
  if (i < value_runs) {
    Bf16Run<kRun>::Load(key_row + shape.num_kv_heads * dim + i * kRun).Store(value_out + i * kRun);
  }
}

// Work of a token, in runs: the turned pairs of all query heads' tails, of the key, then the
// latent.
template <int kRun, typename T>
__global__ void RopeMlaKernel(RopeShape shape, const float2* table, const __nv_bfloat16* query,
                              const __nv_bfloat16* latents, int64_t latent_stride,
                              __nv_bfloat16* absorbed, T* cache) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t token = blockIdx.x;
  const TokenPlace place = PlaceOf(shape, token);
  const int64_t half = shape.qk_rope_head_dim / 2;
  const int64_t width = shape.kv_lora_rank + shape.qk_rope_head_dim;
  const int64_t query_runs = shape.num_heads * half / kRun;
  const int64_t key_runs = half / kRun;
  const __nv_bfloat16* const latent = latents + (token + 1) * latent_stride - width;
  T* const out = cache + place.cache_row * width;
  int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i < query_runs) {
    const int64_t head = i * kRun / half;
    const int64_t d = i * kRun % half;
    const int64_t row = token * shape.num_heads + head;
    const __nv_bfloat16* const from = query +
                                      row * (shape.qk_nope_head_dim + shape.qk_rope_head_dim) +
                                      shape.qk_nope_head_dim + d;
    const Turned<kRun> turned = Turn<kRun>(from, half, table + place.table_row * half + d);
    __nv_bfloat16* const to = absorbed + row * width + shape.kv_lora_rank + d;
    turned.first.Store(to);
    turned.second.Store(to + half);
    return;
  }
  i -= query_runs;
  if (i < key_runs) {
    const int64_t d = i * kRun;
    const Turned<kRun> turned =
        Turn<kRun>(latent + shape.kv_lora_rank + d, half, table + place.table_row * half + d);
    turned.first.Store(out + shape.kv_lora_rank + d);
    turned.second.Store(out + shape.kv_lora_rank + d + half);
    return;
  }
  i -= key_runs;
  if (i < shape.kv_lora_rank / kRun) {
    Bf16Run<kRun>::Load(latent + i * kRun).Store(out + i * kRun);
  }
}

dim3 GridOf(int64_t tokens, int64_t runs) {
  return dim3(static_cast<unsigned>(tokens),
              static_cast<unsigned>((runs + kThreads - 1) / kThreads));
}

template <int kRun, typename T>
absl::Status RunGqa(const RopeShape& shape, const float2* table, __nv_bfloat16* qkv,
                    const DeviceKvCache& cache, cudaStream_t stream) {
  const int64_t half = shape.rotary_dim / 2;
  const int64_t runs = ((shape.num_heads + shape.num_kv_heads) * half +
                        shape.num_kv_heads * (2 * shape.head_dim - shape.rotary_dim)) /
                       kRun;
  return LaunchOverlapping("rope gqa", RopeGqaKernel<kRun, T>,
                           GridOf(shape.num_sequences * shape.query_tokens, runs), kThreads, 0,
                           stream, shape, table, qkv, static_cast<T*>(cache.keys),
                           static_cast<T*>(cache.values));
}

template <int kRun, typename T>
absl::Status RunMla(const RopeShape& shape, const float2* table, const __nv_bfloat16* query,
                    const __nv_bfloat16* latents, int64_t latent_stride, __nv_bfloat16* absorbed,
                    const DeviceKvCache& cache, cudaStream_t stream) {
  const int64_t runs =
      ((shape.num_heads + 1) * (shape.qk_rope_head_dim / 2) + shape.kv_lora_rank) / kRun;
  return LaunchOverlapping("rope mla", RopeMlaKernel<kRun, T>,
                           GridOf(shape.num_sequences * shape.query_tokens, runs), kThreads, 0,
                           stream, shape, table, query, latents, latent_stride, absorbed,
                           static_cast<T*>(cache.keys));
}

// Calls run(kRun, T{}) with the cache's type and the longest runs that the sizes allow.
template <typename Run>
absl::Status Dispatch(CacheFormat cache, bool is_aligned, const Run& run) {
  constexpr std::integral_constant<int, 8> kLong;
  constexpr std::integral_constant<int, 1> kSingle;
  if (cache == CacheFormat::kFp8) {
    return is_aligned ? run(kLong, __nv_fp8_storage_t{}) : run(kSingle, __nv_fp8_storage_t{});
  }
  return is_aligned ? run(kLong, __nv_bfloat16{}) : run(kSingle, __nv_bfloat16{});
}

absl::Status CheckKind(const RopeShape& shape, AttentionKind kind) {
  LASTFLOP_RETURN_IF_ERROR(ValidateRope(shape));
  return shape.kind == kind ? absl::OkStatus()
                            : absl::InvalidArgumentError("rope: the shape is of the other kind");
}

}  // namespace

int64_t RopeTableBytes(const RopeShape& shape) {
  return shape.query_tokens * (shape.rotary_dim / 2) * static_cast<int64_t>(sizeof(float2));
}

absl::Status LaunchRopeTable(const RopeShape& shape, float2* table, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateRope(shape));
  const int64_t entries = shape.query_tokens * (shape.rotary_dim / 2);
  if (entries == 0) {
    return absl::OkStatus();
  }
  RopeTableKernel<<<static_cast<unsigned>((entries + kThreads - 1) / kThreads), kThreads, 0,
                    stream>>>(shape, table);
  return LastLaunchStatus("rope table");
}

absl::Status LaunchRopeGqa(const RopeShape& shape, const float2* table, __nv_bfloat16* qkv,
                           const DeviceKvCache& cache, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckKind(shape, AttentionKind::kGqa));
  if (shape.num_sequences == 0) {
    return absl::OkStatus();
  }
  const bool is_aligned = shape.rotary_dim % 16 == 0 && shape.head_dim % 8 == 0;
  return Dispatch(shape.cache, is_aligned, [&](auto run, auto element) {
    return RunGqa<run(), decltype(element)>(shape, table, qkv, cache, stream);
  });
}

absl::Status LaunchRopeMla(const RopeShape& shape, const float2* table, const __nv_bfloat16* query,
                           const __nv_bfloat16* latents, int64_t latent_stride,
                           __nv_bfloat16* absorbed, const DeviceKvCache& cache,
                           cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckKind(shape, AttentionKind::kMla));
  if (latent_stride < shape.kv_lora_rank + shape.qk_rope_head_dim) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rope: latent_stride=", latent_stride, " is less than kv_lora_rank=", shape.kv_lora_rank,
        " + qk_rope_head_dim=", shape.qk_rope_head_dim));
  }
  if (shape.num_sequences == 0) {
    return absl::OkStatus();
  }
  const bool is_aligned = shape.qk_rope_head_dim % 16 == 0 && shape.qk_nope_head_dim % 8 == 0 &&
                          shape.kv_lora_rank % 8 == 0 && latent_stride % 8 == 0;
  return Dispatch(shape.cache, is_aligned, [&](auto run, auto element) {
    return RunMla<run(), decltype(element)>(shape, table, query, latents, latent_stride, absorbed,
                                            cache, stream);
  });
}

}  // namespace lastflop
