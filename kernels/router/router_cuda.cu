#include <algorithm>

#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_ops.cuh"
#include "kernels/router/router.h"
#include "kernels/router/router_cuda.h"

namespace lastflop {
namespace {

constexpr int kMarkBlocks = 128;    // Each leaves its experts as a bit mask.
constexpr int kMaxMaskWords = 128;  // 4096 experts.

// Loops over a lane's experts: arrays are registers, or local memory where there are too many.
constexpr int UnrollOf(int per_lane) { return per_lane <= 16 ? per_lane : 1; }

// Warps, each with a token, that a block of so many experts has: their values lie in shared memory.
int WarpsOf(int64_t num_experts) { return num_experts <= 1024 ? 4 : 1; }

// The best key of a warp's lanes; the lowest index among equals. Key 0: there is none.
struct Best {
  uint32_t key;
  uint32_t index;
};
__device__ Best BestOfWarp(uint32_t key, uint32_t index) {
  const uint32_t best = __reduce_max_sync(kAllLanes, key);
  return {best, __reduce_min_sync(kAllLanes, key == best ? index : 0xFFFFFFFFu)};
}

// A lane's keys, keys[i] of expert 32 i + lane, from best to worst: a network, so that they stay in
// registers. Equal keys keep their order.
template <int kPerLane>
__device__ void SortKeys(uint32_t (&keys)[kPerLane], uint32_t (&experts)[kPerLane]) {
#pragma unroll UnrollOf(kPerLane)
  for (int round = 0; round < kPerLane; ++round) {
#pragma unroll UnrollOf(kPerLane)
    for (int i = round % 2; i + 1 < kPerLane; i += 2) {
      const bool swaps = keys[i + 1] > keys[i];
      const uint32_t key = swaps ? keys[i + 1] : keys[i];
      const uint32_t expert = swaps ? experts[i + 1] : experts[i];
      keys[i + 1] = swaps ? keys[i] : keys[i + 1];
      experts[i + 1] = swaps ? experts[i] : experts[i + 1];
      keys[i] = key;
      experts[i] = expert;
    }
  }
}

// The lane's best key and its expert, where there are too many to sort.
template <int kPerLane>
__device__ void FindBest(const uint32_t (&keys)[kPerLane], int lane, uint32_t& best,
                         uint32_t& expert) {
  best = 0;
#pragma unroll UnrollOf(kPerLane)
  for (int i = 0; i < kPerLane; ++i) {
    expert = keys[i] > best ? static_cast<uint32_t>(32 * i + lane) : expert;
    best = max(best, keys[i]);
  }
}

// Calls take(i, expert) with the best `count` of a warp's keys, best first; returns how many there
// were. keys[i] of a lane is expert 32 i + lane's; they are used up.
template <int kPerLane, typename Take>
__device__ int TakeBest(uint32_t (&keys)[kPerLane], int count, int lane, const Take& take) {
  constexpr bool kSorts = kPerLane <= 16;
  uint32_t experts[kSorts ? kPerLane : 1];
  uint32_t head = 0;
  uint32_t head_expert = 0xFFFFFFFFu;
  if constexpr (kSorts) {
#pragma unroll UnrollOf(kPerLane)
    for (int i = 0; i < kPerLane; ++i) {
      experts[i] = static_cast<uint32_t>(32 * i + lane);
    }
    SortKeys(keys, experts);
    head = keys[0];
    head_expert = experts[0];
  } else {
    FindBest(keys, lane, head, head_expert);
  }
  for (int taken = 0; taken < count; ++taken) {
    const uint32_t best = __reduce_max_sync(kAllLanes, head);
    if (best == 0) {
      return taken;
    }
    const uint32_t expert = __reduce_min_sync(kAllLanes, head == best ? head_expert : 0xFFFFFFFFu);
    take(taken, static_cast<int>(expert));
    if constexpr (kSorts) {
      const bool is_own = head_expert == expert;
#pragma unroll UnrollOf(kPerLane)
      for (int i = 0; i + 1 < kPerLane; ++i) {
        keys[i] = is_own ? keys[i + 1] : keys[i];
        experts[i] = is_own ? experts[i + 1] : experts[i];
      }
      keys[kPerLane - 1] = is_own ? 0 : keys[kPerLane - 1];
      head = keys[0];
      head_expert = experts[0];
    } else if (head_expert == expert) {
#pragma unroll UnrollOf(kPerLane)
      for (int i = 0; i < kPerLane; ++i) {
        keys[i] = expert == static_cast<uint32_t>(32 * i + lane) ? 0 : keys[i];
      }
      FindBest(keys, lane, head, head_expert);
    }
  }
  return count;
}

__device__ float KeyValue(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// A bit a group: the best top_k_groups by worth, which is a group's best value or the sum of its
// best two. `values` [num_experts] is shared memory. Some lanes share a group.
__device__ uint64_t BestGroups(const RouterShape& shape, const float* values, int lane) {
  const int num_groups = static_cast<int>(shape.router.num_groups);
  const int size = static_cast<int>(shape.num_experts) / num_groups;
  const bool sums_two = shape.router.scoring == RouterScoring::kSigmoid && size > 1;
  int lanes = 32;
  while (lanes > 1 && lanes * num_groups > 32) {
    lanes /= 2;
  }
  uint32_t worth[2] = {0, 0};  // Keys, in the first lane of each group; 64 groups are two a lane.
  const int group = lane / lanes;
#pragma unroll
  for (int pass = 0; pass < 2; ++pass) {
    const int of_pass = group + 32 * pass;
    uint32_t first = 0;
    uint32_t second = 0;
    for (int i = lane % lanes; i < size && of_pass < num_groups; i += lanes) {
      const uint32_t key = OrderedKey(values[of_pass * size + i]);
      second = max(second, min(first, key));
      first = max(first, key);
    }
    for (int offset = lanes / 2; offset > 0; offset /= 2) {
      const uint32_t other = __shfl_xor_sync(kAllLanes, first, offset);
      second = max(max(second, __shfl_xor_sync(kAllLanes, second, offset)), min(first, other));
      first = max(first, other);
    }
    if (first != 0 && lane % lanes == 0) {
      worth[pass] =
          OrderedKey(KeyValue(first) + (sums_two && second != 0 ? KeyValue(second) : 0.0f));
    }
  }
  uint64_t kept = 0;
  for (int i = 0; i < shape.router.top_k_groups; ++i) {
    const int own = worth[1] > worth[0] ? 1 : 0;
    const Best best = BestOfWarp(max(worth[0], worth[1]), static_cast<uint32_t>(group + 32 * own));
    if (best.key == 0) {
      break;
    }
    kept |= uint64_t{1} << best.index;
    worth[0] = best.index == static_cast<uint32_t>(group) ? 0 : worth[0];
    worth[1] = best.index == static_cast<uint32_t>(group + 32) ? 0 : worth[1];
  }
  return kept;
}

__device__ float Sigmoid(float score) { return __fdividef(1.0f, 1.0f + __expf(-score)); }

// What softmax needs of a token's scores.
struct Softmax {
  float max;
  float sum;
};
template <int kPerLane>
__device__ Softmax SoftmaxOf(const float (&scores)[kPerLane]) {
  float max = -INFINITY;
#pragma unroll UnrollOf(kPerLane)
  for (int i = 0; i < kPerLane; ++i) {
    max = fmaxf(max, scores[i]);
  }
  max = WarpMax(max);
  float sum = 0;
#pragma unroll UnrollOf(kPerLane)
  for (int i = 0; i < kPerLane; ++i) {
    sum += expf(scores[i] - max);
  }
  return {max, WarpSum(sum)};
}

// One token of a warp: keys by which it chooses, and in shared memory what weighs (scores, or their
// sigmoids), [num_experts].
template <int kPerLane>
struct Token {
  uint32_t keys[kPerLane];
  float* plain;
  Softmax softmax;  // Over all experts, where it is needed.
};

template <int kPerLane>
__device__ Token<kPerLane> ReadToken(const RouterShape& shape, const float* scores,
                                     const float* bias, float* plain, int lane) {
  const int num_experts = static_cast<int>(shape.num_experts);
  const bool is_sigmoid = shape.router.scoring == RouterScoring::kSigmoid;
  const bool has_bias = shape.router.has_bias;
  const bool divides = shape.router.renormalize || shape.router.softmax_after_top_k;
  Token<kPerLane> token = {.plain = plain, .softmax = {0, 1}};
  float values[kPerLane];
  float biases[kPerLane];
#pragma unroll UnrollOf(kPerLane)
  for (int i = 0; i < kPerLane; ++i) {
    const int e = 32 * i + lane;
    values[i] = e < num_experts ? scores[e] : -INFINITY;
    biases[i] = e < num_experts && has_bias ? bias[e] : 0;
  }
  if (!is_sigmoid && (has_bias || !divides)) {
    token.softmax = SoftmaxOf(values);
  }
  const float inverse = 1.0f / token.softmax.sum;
#pragma unroll UnrollOf(kPerLane)
  for (int i = 0; i < kPerLane; ++i) {
    const int e = 32 * i + lane;
    if (e < num_experts) {
      const float weighs = is_sigmoid ? Sigmoid(values[i]) : values[i];
      plain[e] = weighs;
      const bool by_softmax = !is_sigmoid && has_bias;
      const float value = by_softmax ? expf(weighs - token.softmax.max) * inverse : weighs;
      values[i] = has_bias ? value + biases[i] : value;
    }
    token.keys[i] = OrderedKey(values[i]);
  }
  if (shape.router.num_groups > 1 && shape.router.top_k_groups < shape.router.num_groups) {
    // Groups are contiguous: their values go through shared memory.
    float* const all = plain + num_experts;
#pragma unroll UnrollOf(kPerLane)
    for (int i = 0; i < kPerLane; ++i) {
      if (32 * i + lane < num_experts) {
        all[32 * i + lane] = values[i];
      }
    }
    __syncwarp();
    const uint64_t kept = BestGroups(shape, all, lane);
    const int size = num_experts / static_cast<int>(shape.router.num_groups);
#pragma unroll UnrollOf(kPerLane)
    for (int i = 0; i < kPerLane; ++i) {
      const int e = 32 * i + lane;
      token.keys[i] = e < num_experts && (kept >> (e / size) & 1) != 0 ? token.keys[i] : 0;
    }
  }
  __syncwarp();
  return token;
}

// Weights of a token's `count` chosen experts; lane l has numbers l and l + 32 of them.
__device__ void WriteWeights(const RouterShape& shape, const float* plain, const Softmax& softmax,
                             int count, const int (&chosen)[2], int lane, float* weights) {
  const bool divides = shape.router.renormalize || shape.router.softmax_after_top_k;
  const bool is_sigmoid = shape.router.scoring == RouterScoring::kSigmoid;
  float own[2];
  for (int i = 0; i < 2; ++i) {
    own[i] = lane + 32 * i < count ? plain[chosen[i]] : -INFINITY;
  }
  // The sum over all experts cancels where the chosen are divided by their own sum.
  const float max = is_sigmoid ? 0 : divides ? WarpMax(fmaxf(own[0], own[1])) : softmax.max;
  for (int i = 0; i < 2; ++i) {
    const float weight = is_sigmoid ? own[i] : expf(own[i] - max);
    own[i] = lane + 32 * i < count ? weight : 0;
  }
  const float sum = WarpSum(own[0] + own[1]);
  const float factor =
      static_cast<float>(shape.router.scaling_factor) / (divides ? sum : softmax.sum);
  for (int i = 0; i < 2; ++i) {
    if (lane + 32 * i < shape.top_k) {
      weights[lane + 32 * i] = lane + 32 * i < count ? own[i] * factor : 0.0f;
    }
  }
}

// A warp a token. Masks (of MarkKernel's blocks) say who is in the batch; null: all.
template <int kPerLane>
__global__ void RouterKernel(RouterShape shape, const float* scores, const float* bias,
                             const uint32_t* masks, int num_masks, int32_t* expert_ids,
                             float* weights) {
  extern __shared__ float all_values[];
  __shared__ uint32_t in_batch[kMaxMaskWords];
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int num_experts = static_cast<int>(shape.num_experts);
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  if (masks != nullptr) {
    const int mask_words = (num_experts + 31) / 32;
    for (int word = threadIdx.x; word < mask_words; word += blockDim.x) {
      in_batch[word] = 0;
    }
    __syncthreads();
#pragma unroll 4
    for (int i = threadIdx.x; i < num_masks * mask_words; i += blockDim.x) {
      atomicOr(&in_batch[i % mask_words], masks[i]);
    }
    __syncthreads();
  }
  const int64_t index = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (index >= shape.num_tokens) {
    return;
  }
  Token<kPerLane> token = ReadToken<kPerLane>(shape, scores + index * num_experts, bias,
                                              all_values + warp * 2 * num_experts, lane);
  if (masks != nullptr) {
#pragma unroll UnrollOf(kPerLane)
    for (int i = 0; i < kPerLane; ++i) {
      const bool is_there = 32 * i < num_experts && (in_batch[i] >> lane & 1) != 0;
      token.keys[i] = is_there ? token.keys[i] : 0;
    }
  }
  int chosen[2] = {-1, -1};
  const int count =
      TakeBest(token.keys, static_cast<int>(shape.top_k), lane, [&](int i, int expert) {
        chosen[0] = i == lane ? expert : chosen[0];
        chosen[1] = i == lane + 32 ? expert : chosen[1];
      });
  for (int i = 0; i < 2; ++i) {
    if (lane + 32 * i < shape.top_k) {
      expert_ids[index * shape.top_k + lane + 32 * i] = chosen[i];
    }
  }
  WriteWeights(shape, token.plain, token.softmax, count, chosen, lane,
               weights + index * shape.top_k);
}

// The experts that any token has among its best opportunistic_keep: a bit mask a block.
template <int kPerLane>
__global__ void MarkKernel(RouterShape shape, const float* scores, const float* bias,
                           uint32_t* masks) {
  extern __shared__ float all_values[];
  __shared__ uint32_t in_batch[kMaxMaskWords];
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int num_experts = static_cast<int>(shape.num_experts);
  const int mask_words = (num_experts + 31) / 32;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  for (int word = threadIdx.x; word < mask_words; word += blockDim.x) {
    in_batch[word] = 0;
  }
  __syncthreads();
  for (int64_t index = static_cast<int64_t>(blockIdx.x) * warps + warp; index < shape.num_tokens;
       index += static_cast<int64_t>(gridDim.x) * warps) {
    Token<kPerLane> token = ReadToken<kPerLane>(shape, scores + index * num_experts, bias,
                                                all_values + warp * 2 * num_experts, lane);
    TakeBest(token.keys, static_cast<int>(shape.opportunistic_keep), lane,
             [&](int /*i*/, int expert) {
               if (lane == 0) {
                 atomicOr(&in_batch[expert / 32], 1u << (expert % 32));
               }
             });
    __syncwarp();
  }
  __syncthreads();
  for (int word = threadIdx.x; word < mask_words; word += blockDim.x) {
    masks[blockIdx.x * mask_words + word] = in_batch[word];
  }
}

bool IsLimited(const RouterShape& shape) {
  return shape.opportunistic_keep > 0 && shape.opportunistic_keep < shape.top_k;
}

template <int kPerLane>
absl::Status Run(const RouterShape& shape, const float* scores, const float* bias,
                 int32_t* expert_ids, float* weights, void* workspace, cudaStream_t stream) {
  const int warps = WarpsOf(shape.num_experts);
  const int64_t blocks = (shape.num_tokens + warps - 1) / warps;
  const int64_t shared_bytes = 2 * warps * shape.num_experts * int64_t{sizeof(float)};
  auto* const masks = IsLimited(shape) ? static_cast<uint32_t*>(workspace) : nullptr;
  const int num_masks = static_cast<int>(std::min<int64_t>(kMarkBlocks, blocks));
  if (masks != nullptr) {
    LASTFLOP_RETURN_IF_ERROR(LaunchOverlapping("router, opportunistic", MarkKernel<kPerLane>,
                                               dim3(static_cast<unsigned>(num_masks)), 32 * warps,
                                               shared_bytes, stream, shape, scores, bias, masks));
  }
  return LaunchOverlapping("router", RouterKernel<kPerLane>, dim3(static_cast<unsigned>(blocks)),
                           32 * warps, shared_bytes, stream, shape, scores, bias, masks, num_masks,
                           expert_ids, weights);
}

}  // namespace

int64_t RouterCudaWorkspaceBytes(const RouterShape& shape) {
  return IsLimited(shape) ? int64_t{kMarkBlocks} * ((shape.num_experts + 31) / 32) * 4 : 0;
}

absl::Status LaunchRouter(const RouterShape& shape, const float* scores, const float* bias,
                          int32_t* expert_ids, float* weights, void* workspace,
                          cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateRouter(shape));
  if (shape.router.has_bias && bias == nullptr) {
    return absl::InvalidArgumentError("router: has_bias, and there is no bias");
  }
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  // Experts a lane: their keys are registers.
  const auto run = shape.num_experts <= 128   ? Run<4>
                   : shape.num_experts <= 256 ? Run<8>
                   : shape.num_experts <= 384 ? Run<12>
                   : shape.num_experts <= 512 ? Run<16>
                                              : Run<128>;
  return run(shape, scores, bias, expert_ids, weights, workspace, stream);
}

}  // namespace lastflop
