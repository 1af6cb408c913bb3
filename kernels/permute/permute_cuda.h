#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "step/shapes.h"

// Permute on the device: the pair list of kernels/permute/permute.h, in the same order (expert,
// token, k), and the tiles of the grouped GEMM over it. Everything is device data.
namespace lastflop {

// A tile: up to tile_tokens pairs of one expert that follow each other.
struct alignas(16) CudaTile {
  int32_t expert = 0;      // Of the rank.
  int32_t begin = 0;       // First pair.
  int32_t count = 0;       // Pairs, at least 1.
  int32_t first_tile = 0;  // The expert's first tile: the index of a tile minus this is its m.
};

// Device pointers into one block of memory (PlacePairs).
struct CudaPairs {
  int32_t* offsets = nullptr;      // [num_local_experts + 1]; the last is the number of pairs.
  int32_t* token = nullptr;        // [num_tokens * top_k]
  float* weight = nullptr;         // [num_tokens * top_k]
  int32_t* pair_of = nullptr;      // [num_tokens * top_k]: pair of slot t * top_k + k, or -1.
  int32_t* num_tiles = nullptr;    // [1]
  CudaTile* tiles = nullptr;       // [max_tiles], by expert, then m.
  int32_t* tile_prefix = nullptr;  // [num_local_experts + 1]: tiles of the experts before.
  int32_t* padded_row =
      nullptr;                 // [num_tokens * top_k]: pair's row of LaunchPadRows, which fills it.
  int32_t* scratch = nullptr;  // Of LaunchPermute.
  int64_t max_tiles = 0;
  int64_t num_slots = 0;   // num_tokens * top_k
  int64_t mean_pairs = 0;  // Of num_slots, those that a uniform routing gives the rank, rounded up.
  int num_local_experts = 0;
  int top_k = 0;
  int tile_tokens = 0;

  const int32_t* num_pairs() const { return offsets + num_local_experts; }
};

// Tokens of a tile that suit the expected load of an expert and what its weights are stored in: 8,
// 16, 32 or 64. Tuned on an H200; elsewhere it is a guess.
int PairTileTokens(const PermuteShape& shape, const WeightStorage& weights);

// Memory of a CudaPairs, and the struct that lies in it. `memory` is 256-byte aligned.
int64_t PairsBytes(const PermuteShape& shape, int tile_tokens);
CudaPairs PlacePairs(const PermuteShape& shape, int tile_tokens, void* memory);

// InvalidArgument for sizes out of range; Unimplemented above 1024 local experts or 2^31 - 1 slots.
absl::Status CheckPermuteCuda(const PermuteShape& shape);

// Enqueues the permutation of expert_ids[t, k] and weights[t, k] (device memory) on `stream`: one
// launch up to 4096 slots, three above. Does not wait; can be captured in a graph.
absl::Status LaunchPermute(const PermuteShape& shape, const int32_t* expert_ids,
                           const float* weights, const CudaPairs& pairs, cudaStream_t stream);

}  // namespace lastflop
