#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/moe_combine/moe_combine_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 128;
constexpr int kVector = 8;    // Elements of a thread: 16 bytes.
constexpr int kAtOnce = 8;    // Pairs whose rows are asked for together.
constexpr int kMaxTopK = 32;  // A lane looks up a pair.

struct CombineArguments {
  CudaPairs pairs;
  const uint4* in;
  const uint4* shared;
  uint4* out;
  int64_t num_tokens;
  int top_k;
  int vectors;           // Of a row.
  const int32_t* place;  // Row of a pair; null: the pair itself.
};

__device__ inline void AddScaled(float scale, const uint4& row, float (&sum)[kVector]) {
  const uint32_t words[4] = {row.x, row.y, row.z, row.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += scale * LowBf16(words[i]);
    sum[2 * i + 1] += scale * HighBf16(words[i]);
  }
}

// One thread 8 features of a token; a token's pairs are summed in order of k.
__global__ void CombineKernel(const CombineArguments p) {
  const int vector = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  WaitForEarlierKernels();
  LetNextKernelStart();
  for (int64_t token = blockIdx.y; token < p.num_tokens; token += gridDim.y) {
    // A lane looks up one pair and its weight for the whole warp.
    int own_pair = -1;
    float own_weight = 0;
    if (lane < p.top_k) {
      own_pair = p.pairs.pair_of[token * p.top_k + lane];
      own_weight = own_pair >= 0 ? p.pairs.weight[own_pair] : 0.0f;
      own_pair = own_pair >= 0 && p.place != nullptr ? p.place[own_pair] : own_pair;
    }
    // Asked for beside the rows; a weight is waited for after they are on their way.
    const int64_t to = token * p.vectors + vector;
    const bool adds = p.shared != nullptr && vector < p.vectors;
    const uint4 shared = adds ? p.shared[to] : make_uint4(0, 0, 0, 0);
    float sum[kVector] = {};
    for (int base = 0; base < p.top_k; base += kAtOnce) {
      uint4 rows[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int k = base + i;
        const int pair = k < kMaxTopK ? __shfl_sync(0xFFFFFFFFu, own_pair, k) : -1;
        rows[i] = make_uint4(0, 0, 0, 0);
        if (pair >= 0 && vector < p.vectors) {
          rows[i] = p.in[static_cast<int64_t>(pair) * p.vectors + vector];
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int k = base + i;
        const float weight = k < kMaxTopK ? __shfl_sync(0xFFFFFFFFu, own_weight, k) : 0.0f;
        AddScaled(weight, rows[i], sum);
      }
    }
    if (vector < p.vectors) {
      if (p.shared != nullptr) {
        AddScaled(1.0f, shared, sum);
      }
      p.out[to] = make_uint4(PackBf16(sum[0], sum[1]), PackBf16(sum[2], sum[3]),
                             PackBf16(sum[4], sum[5]), PackBf16(sum[6], sum[7]));
    }
  }
}

}  // namespace

absl::Status CheckMoeCombineCuda(const CombineShape& shape) {
  if (shape.num_tokens < 0 || shape.hidden_size < 1 || shape.hidden_size % kVector != 0 ||
      shape.top_k < 1 || shape.top_k > kMaxTopK) {
    return absl::InvalidArgumentError(absl::StrCat("moe_combine: hidden_size=", shape.hidden_size,
                                                   " top_k=", shape.top_k, ": a multiple of ",
                                                   kVector, " and up to ", kMaxTopK, " are taken"));
  }
  return absl::OkStatus();
}

absl::Status LaunchMoeCombine(const CombineShape& shape, const CudaPairs& pairs,
                              const __nv_bfloat16* in, const __nv_bfloat16* shared,
                              __nv_bfloat16* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckMoeCombineCuda(shape));
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  const CombineArguments p = {.pairs = pairs,
                              .in = reinterpret_cast<const uint4*>(in),
                              .shared = reinterpret_cast<const uint4*>(shared),
                              .out = reinterpret_cast<uint4*>(out),
                              .num_tokens = shape.num_tokens,
                              .top_k = static_cast<int>(shape.top_k),
                              .vectors = static_cast<int>(shape.hidden_size / kVector),
                              .place = shape.is_padded ? pairs.padded_row : nullptr};
  const dim3 grid(static_cast<unsigned int>((p.vectors + kThreads - 1) / kThreads),
                  static_cast<unsigned int>(std::min<int64_t>(shape.num_tokens, 65535)));
  return LaunchOverlapping("moe_combine", CombineKernel, grid, kThreads, 0, stream, p);
}

}  // namespace lastflop
