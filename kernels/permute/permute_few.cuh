#pragma once

#include <cstdint>

#include "kernels/cuda/ptx.cuh"
#include "kernels/permute/permute_cuda.h"

// The permutation of few slots.
namespace lastflop {
namespace permute {

struct PermuteArguments {
  CudaPairs pairs;
  const int32_t* expert_ids;
  const float* weights;
  int num_slots;
  int first_expert;
};

// For few slots, as of decode: each pair's place is the number of slots that come before it,
// counted over all of them, without counts of warps and their scans. A warp has slots or experts.
constexpr int kFewSlots =
    64;  // With 128 it is slower than the other (docs/kernels/grouped_gemm.md).
constexpr int kMostExpertThreads = 512;

// Which pairs begin a tile, and so how many tiles begin before a pair.
struct TileStarts {
  uint32_t bits[kFewSlots / 32];

  __device__ int Before(int pair) const {
    int count = 0;
#pragma unroll
    for (int word = 0; word < kFewSlots / 32; ++word) {
      const int below = min(max(pair - 32 * word, 0), 32);
      const uint32_t mask = below == 32 ? 0xFFFFFFFFu : (1u << below) - 1u;
      count += __popc(bits[word] & mask);
    }
    return count;
  }
};

__global__ void __launch_bounds__(kFewSlots + kMostExpertThreads)
    PermuteFewKernel(const PermuteArguments p) {
  __shared__ __align__(16) int experts[kFewSlots];  // Of other ranks and none: behind all.
  __shared__ TileStarts starts;
  constexpr int kNoExpert = INT32_MAX;
  const CudaPairs& pairs = p.pairs;
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kFewSlots / 32) {
    starts.bits[thread] = 0;
  }
  WaitForEarlierKernels();
  LetNextKernelStart();
  int expert = kNoExpert;
  float weight = 0;
  if (thread < kFewSlots) {
    if (thread < p.num_slots) {
      const int id = p.expert_ids[thread];
      const int local = id - p.first_expert;
      expert = id >= 0 && local >= 0 && local < pairs.num_local_experts ? local : kNoExpert;
      weight = p.weights[thread];
    }
    experts[thread] = expert;
  }
  __syncthreads();
  const int4* fours = reinterpret_cast<const int4*>(experts);
  const int num_fours = (p.num_slots + 3) / 4;
  const auto count_lower = [&](int of) {
    int lower = 0;
    for (int i = 0; i < num_fours; ++i) {
      const int4 four = fours[i];
      lower += (four.x < of) + (four.y < of) + (four.z < of) + (four.w < of);
    }
    return lower;
  };
  int first_pair = 0;  // Of the slot's expert.
  int before = 0;      // The expert's pairs in earlier slots.
  int count = 0;       // And in all.
  if (thread < kFewSlots && expert != kNoExpert) {
    first_pair = count_lower(expert);
    for (int i = 0; i < num_fours; ++i) {
      const int4 four = fours[i];
      const int same[4] = {four.x == expert, four.y == expert, four.z == expert, four.w == expert};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        count += same[k];
        before += 4 * i + k < thread ? same[k] : 0;
      }
    }
    if (before % pairs.tile_tokens == 0) {
      const int pair = first_pair + before;
      atomicOr(&starts.bits[pair / 32], 1u << (pair % 32));
    }
  }
  __syncthreads();
  if (thread < p.num_slots) {
    int pair = -1;
    if (expert != kNoExpert) {
      pair = first_pair + before;
      pairs.token[pair] = thread / pairs.top_k;
      pairs.weight[pair] = weight;
      if (before % pairs.tile_tokens == 0) {
        pairs.tiles[starts.Before(pair)] = {.expert = expert,
                                            .begin = pair,
                                            .count = min(pairs.tile_tokens, count - before),
                                            .first_tile = starts.Before(first_pair)};
      }
    }
    pairs.pair_of[thread] = pair;
  }
  const int num_expert_threads = static_cast<int>(blockDim.x) - kFewSlots;
  for (int e = thread - kFewSlots; e >= 0 && e <= pairs.num_local_experts;
       e += num_expert_threads) {
    const int lower = count_lower(e);
    const int tiles = starts.Before(lower);
    pairs.offsets[e] = lower;
    pairs.tile_prefix[e] = tiles;
    if (e == pairs.num_local_experts) {
      *pairs.num_tiles = tiles;
    }
  }
}

}  // namespace permute
}  // namespace lastflop
