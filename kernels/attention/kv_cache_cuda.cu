#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/kv_cache_cuda.h"
#include "kernels/cuda/row_ops.cuh"

namespace lastflop {
namespace {

constexpr int kThreads = 256;

__device__ void StoreValue(float value, __nv_bfloat16* to) { *to = __float2bfloat16_rn(value); }
__device__ void StoreValue(float value, __nv_fp8_storage_t* to) {
  *to = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
}

struct FillArguments {
  KvSlice slice;
  uint64_t seed;
  uint64_t stream;
  int64_t num_rows;  // num_sequences * context * heads
  int64_t context;
  int64_t positions;  // Per sequence, with the places of new tokens.
  int64_t heads;
  int64_t width;  // Elements of a row.
};

// A thread a draw of four values; rows of the context only.
template <typename T>
__global__ void FillContextKernel(FillArguments a, T* out) {
  const int64_t draws = (a.width + 3) / 4;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       i < a.num_rows * draws; i += step) {
    const int64_t draw = i % draws;
    const int64_t head = i / draws % a.heads;
    const int64_t position = i / draws / a.heads % a.context;
    const int64_t sequence = i / draws / a.heads / a.context;
    const int64_t row = ContextRow(a.slice, sequence, position, head);
    const uint64_t bits =
        CounterRandom(a.seed, a.stream, static_cast<uint64_t>(row * draws + draw));
    T* const to = out + ((sequence * a.positions + position) * a.heads + head) * a.width + 4 * draw;
    for (int j = 0; j < 4 && 4 * draw + j < a.width; ++j) {
      StoreValue(ContextValue(bits, j), to + j);
    }
  }
}

absl::Status Fill(const FillArguments& arguments, CacheFormat format, void* out,
                  cudaStream_t stream) {
  const int64_t threads = arguments.num_rows * ((arguments.width + 3) / 4);
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(16384, (threads + kThreads - 1) / kThreads));
  if (format == CacheFormat::kFp8) {
    FillContextKernel<<<blocks, kThreads, 0, stream>>>(arguments,
                                                       static_cast<__nv_fp8_storage_t*>(out));
  } else {
    FillContextKernel<<<blocks, kThreads, 0, stream>>>(arguments, static_cast<__nv_bfloat16*>(out));
  }
  return LastLaunchStatus("kv_cache fill");
}

}  // namespace

absl::Status LaunchFillRandomCache(const AttentionShape& shape, const KvSlice& slice, int layer,
                                   uint64_t seed, const DeviceKvCache& cache, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateAttention(shape));
  const bool is_gqa = shape.kind == AttentionKind::kGqa;
  if (slice.first_sequence < 0 || slice.first_kv_head < 0 ||
      slice.first_kv_head + (is_gqa ? shape.num_kv_heads : 1) > slice.num_kv_heads_full) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kv_cache: first_sequence=", slice.first_sequence, " first_kv_head=", slice.first_kv_head,
        ": the slice is not within the ", slice.num_kv_heads_full, " heads of the model"));
  }
  if (shape.num_sequences * shape.context == 0) {
    return absl::OkStatus();
  }
  const int64_t heads = is_gqa ? shape.num_kv_heads : 1;
  FillArguments arguments{
      .slice = slice,
      .seed = seed,
      .stream = kContextKeyStream + static_cast<uint64_t>(layer),
      .num_rows = shape.num_sequences * shape.context * heads,
      .context = shape.context,
      .positions = shape.context + shape.query_tokens,
      .heads = heads,
      .width = is_gqa ? shape.head_dim : shape.kv_lora_rank + shape.qk_rope_head_dim};
  LASTFLOP_RETURN_IF_ERROR(Fill(arguments, shape.cache, cache.keys, stream));
  if (is_gqa) {
    arguments.stream = kContextValueStream + static_cast<uint64_t>(layer);
    return Fill(arguments, shape.cache, cache.values, stream);
  }
  return absl::OkStatus();
}

}  // namespace lastflop
