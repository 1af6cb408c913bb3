#include <algorithm>

#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/row_ops.cuh"
#include "kernels/router/router.h"
#include "kernels/router/router_cuda.h"

namespace lastflop {
namespace {

constexpr int kMarkBlocks = 128;    // Each leaves its experts as a bit mask.
constexpr int kMaxMaskWords = 128;  // 4096 experts.

// Warps, each with a token and its values in shared memory, that a block of so many experts has.
int WarpsOf(int64_t num_experts) { return num_experts <= 1024 ? 4 : 1; }

// The best value of a warp's lanes; the lowest index among equals. Key 0: there is none.
struct Best {
  uint32_t key;
  uint32_t index;
};
__device__ Best BestOfWarp(uint32_t key, uint32_t index) {
  const uint32_t best = __reduce_max_sync(kAllLanes, key);
  return {best, __reduce_min_sync(kAllLanes, key == best ? index : 0xFFFFFFFFu)};
}

// The lane's own best of values[lane, lane + 32, ...).
__device__ Best BestOfLane(const float* values, int count, int lane) {
  Best best = {0, 0xFFFFFFFFu};
  for (int i = lane; i < count; i += 32) {
    const uint32_t key = OrderedKey(values[i]);
    if (key > best.key) {
      best = {key, static_cast<uint32_t>(i)};
    }
  }
  return best;
}

// Calls take(i, index) with the best `count` of `values`, best first, and makes each -infinity;
// returns how many there were. All lanes of a warp together.
template <typename Take>
__device__ int TakeBest(float* values, int num_values, int count, int lane, const Take& take) {
  Best own = BestOfLane(values, num_values, lane);
  for (int i = 0; i < count; ++i) {
    const Best best = BestOfWarp(own.key, own.index);
    if (best.key == 0) {
      return i;
    }
    take(i, static_cast<int>(best.index));
    if (own.index == best.index) {
      values[best.index] = -INFINITY;
      own = BestOfLane(values, num_values, lane);
    }
  }
  return count;
}

__device__ float Sigmoid(float score) { return 1.0f / (1.0f + expf(-score)); }

// What softmax needs of a token's scores.
struct Softmax {
  float max;
  float sum;
};
__device__ Softmax SoftmaxOf(const float* scores, int count, int lane) {
  float max = -INFINITY;
  for (int e = lane; e < count; e += 32) {
    max = fmaxf(max, scores[e]);
  }
  max = WarpMax(max);
  float sum = 0;
  for (int e = lane; e < count; e += 32) {
    sum += expf(scores[e] - max);
  }
  return {max, WarpSum(sum)};
}

// Makes the values of groups that take no part -infinity. A group's worth is its best value, or the
// sum of its best two.
__device__ void KeepBestGroups(const RouterShape& shape, float* values, int lane) {
  const int num_groups = static_cast<int>(shape.router.num_groups);
  const int size = static_cast<int>(shape.num_experts) / num_groups;
  const bool sums_two = shape.router.scoring == RouterScoring::kSigmoid && size > 1;
  float worth[2] = {-INFINITY, -INFINITY};  // Of groups lane and lane + 32.
  for (int group = 0; group < num_groups; ++group) {
    const float* const members = values + group * size;
    uint32_t first = 0;  // The lane's best two keys.
    uint32_t second = 0;
    for (int i = lane; i < size; i += 32) {
      const uint32_t key = OrderedKey(members[i]);
      second = max(second, min(first, key));
      first = max(first, key);
    }
    const auto value_of = [](uint32_t key) {
      return key == 0 ? -INFINITY
                      : __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
    };
    const uint32_t best = __reduce_max_sync(kAllLanes, first);
    float sum = value_of(best);
    if (sums_two) {
      const unsigned holders = __ballot_sync(kAllLanes, first == best);
      const bool gives_second = lane == __ffs(static_cast<int>(holders)) - 1;
      const uint32_t next = __reduce_max_sync(kAllLanes, gives_second ? second : first);
      sum += next == 0 ? 0.0f : value_of(next);
    }
    if (lane == group % 32) {
      worth[group / 32] = sum;
    }
  }
  uint64_t kept = 0;
  for (int i = 0; i < shape.router.top_k_groups; ++i) {
    const uint32_t keys[2] = {OrderedKey(worth[0]), OrderedKey(worth[1])};
    const int own = keys[1] > keys[0] ? 1 : 0;
    const Best best = BestOfWarp(keys[own], static_cast<uint32_t>(lane + 32 * own));
    if (best.key == 0) {
      break;
    }
    kept |= uint64_t{1} << best.index;
    if (lane == static_cast<int>(best.index) % 32) {
      worth[best.index / 32] = -INFINITY;
    }
  }
  for (int e = lane; e < shape.num_experts; e += 32) {
    if ((kept >> (e / size) & 1) == 0) {
      values[e] = -INFINITY;
    }
  }
}

// Writes the values by which a token chooses to shared memory.
__device__ void MakeValues(const RouterShape& shape, const float* scores, const float* bias,
                           float* values, int lane) {
  const int num_experts = static_cast<int>(shape.num_experts);
  Softmax softmax = {0, 1};
  const bool is_sigmoid = shape.router.scoring == RouterScoring::kSigmoid;
  if (!is_sigmoid && shape.router.has_bias) {
    softmax = SoftmaxOf(scores, num_experts, lane);
  }
  const float inverse = 1.0f / softmax.sum;
  for (int e = lane; e < num_experts; e += 32) {
    float value = scores[e];
    if (is_sigmoid) {
      value = Sigmoid(value);
    } else if (shape.router.has_bias) {
      value = expf(value - softmax.max) * inverse;
    }
    values[e] = shape.router.has_bias ? value + bias[e] : value;
  }
  __syncwarp();
  if (shape.router.num_groups > 1 && shape.router.top_k_groups < shape.router.num_groups) {
    KeepBestGroups(shape, values, lane);
    __syncwarp();
  }
}

// Weights of a token's `count` chosen experts; lane l has numbers l and l + 32 of them.
__device__ void WriteWeights(const RouterShape& shape, const float* scores, int count,
                             const int (&chosen)[2], int lane, float* weights) {
  const bool divides = shape.router.renormalize || shape.router.softmax_after_top_k;
  const bool is_sigmoid = shape.router.scoring == RouterScoring::kSigmoid;
  Softmax softmax = {0, 1};
  if (!is_sigmoid && !divides) {
    softmax = SoftmaxOf(scores, static_cast<int>(shape.num_experts), lane);
  } else if (!is_sigmoid) {
    // The sum over all experts cancels where the chosen are divided by their own sum.
    float max = -INFINITY;
    for (int i = 0; i < 2; ++i) {
      max = fmaxf(max, lane + 32 * i < count ? scores[chosen[i]] : -INFINITY);
    }
    softmax.max = WarpMax(max);
  }
  float own[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    if (lane + 32 * i < count) {
      const float score = scores[chosen[i]];
      own[i] = is_sigmoid ? Sigmoid(score) : expf(score - softmax.max);
    }
  }
  const float sum = WarpSum(own[0] + own[1]);
  const float divisor = divides ? sum : softmax.sum;
  const float factor = static_cast<float>(shape.router.scaling_factor) / divisor;
  for (int i = 0; i < 2; ++i) {
    if (lane + 32 * i < shape.top_k) {
      weights[lane + 32 * i] = lane + 32 * i < count ? own[i] * factor : 0.0f;
    }
  }
}

// A warp a token. Masks (of MarkKernel's blocks) say who is in the batch; null: all.
__global__ void RouterKernel(RouterShape shape, const float* scores, const float* bias,
                             const uint32_t* masks, int num_masks, int32_t* expert_ids,
                             float* weights) {
  extern __shared__ float all_values[];
  __shared__ uint32_t in_batch[kMaxMaskWords];
  const int num_experts = static_cast<int>(shape.num_experts);
  const int mask_words = (num_experts + 31) / 32;
  if (masks != nullptr) {
    for (int word = threadIdx.x; word < mask_words; word += blockDim.x) {
      uint32_t bits = 0;
      for (int i = 0; i < num_masks; ++i) {
        bits |= masks[i * mask_words + word];
      }
      in_batch[word] = bits;
    }
    __syncthreads();
  }
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (token >= shape.num_tokens) {
    return;
  }
  float* const values = all_values + warp * num_experts;
  const float* const token_scores = scores + token * num_experts;
  MakeValues(shape, token_scores, bias, values, lane);
  if (masks != nullptr) {
    for (int e = lane; e < num_experts; e += 32) {
      if ((in_batch[e / 32] >> (e % 32) & 1) == 0) {
        values[e] = -INFINITY;
      }
    }
    __syncwarp();
  }
  int chosen[2] = {-1, -1};
  const int count =
      TakeBest(values, num_experts, static_cast<int>(shape.top_k), lane, [&](int i, int expert) {
        if (lane == i % 32) {
          chosen[i / 32] = expert;
        }
      });
  for (int i = 0; i < 2; ++i) {
    if (lane + 32 * i < shape.top_k) {
      expert_ids[token * shape.top_k + lane + 32 * i] = chosen[i];
    }
  }
  WriteWeights(shape, token_scores, count, chosen, lane, weights + token * shape.top_k);
}

// The experts that any token has among its best opportunistic_keep: a bit mask a block.
__global__ void MarkKernel(RouterShape shape, const float* scores, const float* bias,
                           uint32_t* masks) {
  extern __shared__ float all_values[];
  __shared__ uint32_t in_batch[kMaxMaskWords];
  const int num_experts = static_cast<int>(shape.num_experts);
  const int mask_words = (num_experts + 31) / 32;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int warps = blockDim.x / 32;
  for (int word = threadIdx.x; word < mask_words; word += blockDim.x) {
    in_batch[word] = 0;
  }
  __syncthreads();
  float* const values = all_values + warp * num_experts;
  for (int64_t token = static_cast<int64_t>(blockIdx.x) * warps + warp; token < shape.num_tokens;
       token += static_cast<int64_t>(gridDim.x) * warps) {
    MakeValues(shape, scores + token * num_experts, bias, values, lane);
    TakeBest(values, num_experts, static_cast<int>(shape.opportunistic_keep), lane,
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
  const int warps = WarpsOf(shape.num_experts);
  const int64_t blocks = (shape.num_tokens + warps - 1) / warps;
  const size_t shared_bytes = static_cast<size_t>(warps * shape.num_experts) * sizeof(float);
  auto* const masks = IsLimited(shape) ? static_cast<uint32_t*>(workspace) : nullptr;
  const int num_masks = static_cast<int>(std::min<int64_t>(kMarkBlocks, blocks));
  if (masks != nullptr) {
    MarkKernel<<<static_cast<unsigned>(num_masks), 32 * warps, shared_bytes, stream>>>(
        shape, scores, bias, masks);
    LASTFLOP_RETURN_IF_ERROR(LastLaunchStatus("router, opportunistic"));
  }
  RouterKernel<<<static_cast<unsigned>(blocks), 32 * warps, shared_bytes, stream>>>(
      shape, scores, bias, masks, num_masks, expert_ids, weights);
  return LastLaunchStatus("router");
}

}  // namespace lastflop
