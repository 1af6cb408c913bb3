#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/panel.h"
#include "kernels/cuda/ptx.cuh"

// Persistent fused MoE for decode: gate_up, SwiGLU, down and combine in one cooperative launch,
// int4 weights (kernels/cuda/panel.h) with bf16 activations. docs/kernels/fused_moe.md has the
// floor and the reasons.
//
// Every warp streams its own share of the weights through a ring in shared memory that one lane
// fills with bulk copies, several stages ahead and across the borders of work items: the memory
// system never waits for a reduction, and the weights of the second phase are on their way while
// the grid meets between the phases.
//
// Phase 1, item = (tile of up to 8 tokens of one expert, row block of 8 features): the 8 warps of a
// block split the input features, sum in shared memory, apply SwiGLU and write act[pair, f].
// Phase 2, a block owns 16 rows of the output and walks over all tiles; sums of all experts stay in
// shared memory until they are written once, as bf16. No atomics: results do not depend on order.
namespace lastflop {

struct FusedMoeArguments {
  const unsigned char*
      gate_up;  // Panels [num_local_experts][2 I rows, hidden], CudaRowOrder::kGateAndUp.
  const unsigned char* down;    // Panels [num_local_experts][hidden rows, I], kPlain.
  const __nv_bfloat16* in;      // [num_tokens, hidden]
  const __nv_bfloat16* shared;  // [num_tokens, hidden] added to the output, or null.
  const int32_t* expert_ids;    // [num_tokens, top_k], of the model.
  const float* expert_weights;  // [num_tokens, top_k]
  __nv_bfloat16* act;           // Workspace [num_tokens * top_k, I].
  __nv_bfloat16* out;           // [num_tokens, hidden]
  unsigned int* barrier;        // Workspace: counts arrivals; zeroed once, never reset.
  int num_tokens;
  int top_k;
  int first_expert;
  int num_local_experts;
  int hidden;
  int intermediate;
};

namespace fused_moe {

inline constexpr int kPanelK = 64;  // Input features of a block of a panel.
inline constexpr int kPanelBytes = PanelBlockBytes(WeightFormat::kInt4G32);
inline constexpr int kPanelWeightBytes = 512;
inline constexpr int kWarps = 8;
inline constexpr int kThreads = kWarps * 32;
inline constexpr int kStageBlocks = 4;    // k blocks a stage.
inline constexpr int kFeatureBlocks = 2;  // k blocks whose features are asked for at once.
inline constexpr int kStageBytes = kStageBlocks * kPanelBytes;
inline constexpr int kTileTokens = 8;  // n of mma.m16n8k16.

// Where the parts of shared memory are.
struct SharedLayout {
  int ring;         // [kWarps][stages][kStageBytes]
  int barriers;     // [kWarps][stages] 8 B
  int reduction;    // [2][kWarps][16 * 8] fp32
  int sums;         // [kWarps][num_tokens][16] fp32
  int tile_expert;  // [max tiles] int
  int tile_begin;   // [max tiles + 1] int
  int pairs;        // [num_tokens * top_k] int
  int counts;       // [num_local_experts + 1] int
  int bytes;
};

__host__ __device__ inline int AlignUp(int value, int to) { return (value + to - 1) / to * to; }

__host__ __device__ inline int MaxTiles(int num_tokens, int top_k, int num_local_experts) {
  const int num_pairs = num_tokens * top_k;
  const int by_pairs = num_pairs / kTileTokens + num_local_experts;
  return by_pairs < num_pairs ? by_pairs : num_pairs;
}

__host__ __device__ inline SharedLayout MakeSharedLayout(int num_tokens, int top_k,
                                                         int num_local_experts, int stages) {
  SharedLayout at{};
  const int max_tiles = MaxTiles(num_tokens, top_k, num_local_experts);
  at.ring = 0;
  at.barriers = kWarps * stages * kStageBytes;
  at.reduction = AlignUp(at.barriers + kWarps * stages * 8, 16);
  at.sums = at.reduction + 2 * kWarps * 128 * 4;
  at.tile_expert = at.sums + kWarps * num_tokens * 16 * 4;
  at.tile_begin = at.tile_expert + max_tiles * 4;
  at.pairs = at.tile_begin + (max_tiles + 1) * 4;
  at.counts = at.pairs + num_tokens * top_k * 4;
  at.bytes = AlignUp(at.counts + (num_local_experts + 1) * 4, 16);
  return at;
}

// ---- Products -----------------------------------------------------------------------------------

// Adds one panel's product to `sum`: rows g, g + 8 by columns (tokens) 2q, 2q + 1.
// `x0`, `x1` are the lane's 8 input features of groups 0 and 1 of token g.
__device__ inline void MultiplyPanel(const unsigned char* panel, int lane, uint4 x0, uint4 x1,
                                     float (&sum)[4]) {
  const uint4 words = *reinterpret_cast<const uint4*>(panel + 16 * lane);
  const uint2 scale_bits =
      *reinterpret_cast<const uint2*>(panel + kPanelWeightBytes + 8 * (lane / 4));
  const uint32_t word_of[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int group = 0; group < 2; ++group) {
    const uint4 x = group == 0 ? x0 : x1;
    float part[4];
    uint32_t a[4];
    NibblesToValues(word_of[2 * group], a);
    MmaFirst(part, a, x.x, x.y);
    NibblesToValues(word_of[2 * group + 1], a);
    Mma(part, a, x.z, x.w);
    const uint32_t bits = group == 0 ? scale_bits.x : scale_bits.y;
    const float low = __uint_as_float(bits << 16);
    const float high = __uint_as_float(bits & 0xFFFF0000u);
    sum[0] += low * part[0];
    sum[1] += low * part[1];
    sum[2] += high * part[2];
    sum[3] += high * part[3];
  }
}

// All blocks of the grid meet. `barrier` only ever grows: each meeting adds gridDim.x.
__device__ inline void MeetGrid(unsigned int* barrier) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    const unsigned int before = atomicAdd(barrier, 1u);
    const unsigned int target = (before / gridDim.x + 1u) * gridDim.x;
    unsigned int seen = 0;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(barrier) : "memory");
    } while (static_cast<int>(seen - target) < 0);
  }
  __syncthreads();
}

// ---- Routing ------------------------------------------------------------------------------------

// Sorts the pairs of local experts by expert, stably, and cuts each expert's into tiles of 8: the
// same lists in every block. All threads call it. Returns the number of tiles.
__device__ inline int MakeTiles(const FusedMoeArguments& p, int* counts, int* pairs,
                                int* tile_expert, int* tile_begin) {
  const int num_pairs = p.num_tokens * p.top_k;
  for (int e = threadIdx.x; e <= p.num_local_experts; e += kThreads) {
    counts[e] = 0;
  }
  __syncthreads();
  __shared__ int num_tiles_shared;
  if (threadIdx.x < 32) {
    const int lane = static_cast<int>(threadIdx.x);
    // Count, one warp: later passes need the order of pairs, so none of this is split further.
    for (int base = 0; base < num_pairs; base += 32) {
      const int pair = base + lane;
      const int expert = pair < num_pairs ? p.expert_ids[pair] - p.first_expert : -1;
      if (expert >= 0 && expert < p.num_local_experts) {
        atomicAdd(&counts[expert], 1);
      }
    }
    __syncwarp();
    // Exclusive sums of counts and tiles over experts, 32 at a time.
    int pair_base = 0;
    int tile_base = 0;
    for (int base = 0; base < p.num_local_experts; base += 32) {
      const int e = base + lane;
      const int count = e < p.num_local_experts ? counts[e] : 0;
      const int tiles = (count + kTileTokens - 1) / kTileTokens;
      int pair_sum = count;
      int tile_sum = tiles;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int pair_left = __shfl_up_sync(0xFFFFFFFFu, pair_sum, step);
        const int tile_left = __shfl_up_sync(0xFFFFFFFFu, tile_sum, step);
        pair_sum += lane >= step ? pair_left : 0;
        tile_sum += lane >= step ? tile_left : 0;
      }
      const int first_pair = pair_base + pair_sum - count;
      const int first_tile = tile_base + tile_sum - tiles;
      for (int t = 0; t < tiles; ++t) {
        tile_expert[first_tile + t] = e;
        tile_begin[first_tile + t] = first_pair + t * kTileTokens;
      }
      if (e < p.num_local_experts) {
        counts[e] = first_pair;  // From here on the next free place of the expert.
      }
      pair_base += __shfl_sync(0xFFFFFFFFu, pair_sum, 31);
      tile_base += __shfl_sync(0xFFFFFFFFu, tile_sum, 31);
    }
    if (lane == 0) {
      tile_begin[tile_base] = pair_base;
      num_tiles_shared = tile_base;
    }
    __syncwarp();
    for (int base = 0; base < num_pairs; base += 32) {
      const int pair = base + lane;
      int expert = pair < num_pairs ? p.expert_ids[pair] - p.first_expert : -1;
      expert = expert < p.num_local_experts ? expert : -1;
      const unsigned int same = __match_any_sync(0xFFFFFFFFu, expert);
      const int before = __popc(same & ((1u << lane) - 1u));
      if (expert >= 0) {
        pairs[counts[expert] + before] = pair;
      }
      __syncwarp();
      if (expert >= 0 && before == 0) {
        counts[expert] += __popc(same);
      }
      __syncwarp();
    }
  }
  __syncthreads();
  return num_tiles_shared;
}

// ---- The stream of weights ----------------------------------------------------------------------

// Sizes that do not change during a launch, for one warp.
struct WorkShape {
  int num_tiles;
  int row_blocks_1;  // intermediate / 8
  int k_blocks_1;    // hidden / 64
  int k_begin_1;     // This warp's k blocks of phase 1.
  int k_end_1;
  int num_items_1;   // 0 when the warp has no k blocks.
  int row_blocks_2;  // hidden / 16
  int k_blocks_2;    // intermediate / 64
  int parts_2;       // Stages of one (row block, tile).
  int tile_step_2;   // kWarps units further: so many tiles
  int part_step_2;   // and so many parts.
  int first_tile_2;  // This warp's first unit.
  int first_part_2;
};

// Walks over the stages of one warp in the order in which they are used: phase 1's items of the
// block, each over the warp's k blocks; then phase 2's row blocks of the block, each over the
// warp's units (tile, part). Addresses move on by adding; only a new item costs a division.
struct Walk {
  const unsigned char* at = nullptr;
  int phase = 1;
  int item = 0;     // Phase 1: item. Phase 2: row block.
  int k_block = 0;  // Phase 1.
  int tile = 0;     // Phase 2.
  int part = 0;     // Phase 2.

  __device__ void StartItem(const FusedMoeArguments& p, const WorkShape& w,
                            const int* tile_expert) {
    if (item >= w.num_items_1) {
      phase = 2;
      item = static_cast<int>(blockIdx.x);
      StartRowBlock(w);
      return;
    }
    const int of_tile = item / w.row_blocks_1;
    const int row_block = item - of_tile * w.row_blocks_1;
    const int64_t block =
        (static_cast<int64_t>(tile_expert[of_tile]) * w.row_blocks_1 + row_block) * w.k_blocks_1;
    k_block = w.k_begin_1;
    at = p.gate_up + (block + k_block) * kPanelBytes;
  }

  __device__ void StartRowBlock(const WorkShape& w) {
    tile = w.first_tile_2;
    part = w.first_part_2;
  }

  // The next stage: its address and number of k blocks, 0 when there is none; then moves on.
  __device__ int Next(const FusedMoeArguments& p, const WorkShape& w, const int* tile_expert,
                      const unsigned char*& from) {
    if (phase == 1) {
      const int num_blocks = min(kStageBlocks, w.k_end_1 - k_block);
      from = at;
      at += kStageBytes;
      k_block += kStageBlocks;
      if (k_block >= w.k_end_1) {
        item += static_cast<int>(gridDim.x);
        StartItem(p, w, tile_expert);
      }
      return num_blocks;
    }
    if (item >= w.row_blocks_2 || w.first_tile_2 >= w.num_tiles) {
      return 0;
    }
    const int64_t block =
        (static_cast<int64_t>(tile_expert[tile]) * w.row_blocks_2 + item) * w.k_blocks_2 +
        part * kStageBlocks;
    from = p.down + block * kPanelBytes;
    const int num_blocks = min(kStageBlocks, w.k_blocks_2 - part * kStageBlocks);
    StepUnit(w, tile, part);
    if (tile >= w.num_tiles) {
      item += static_cast<int>(gridDim.x);
      StartRowBlock(w);
    }
    return num_blocks;
  }

  static __device__ void StepUnit(const WorkShape& w, int& tile, int& part) {
    tile += w.tile_step_2;
    part += w.part_step_2;
    if (part >= w.parts_2) {
      part -= w.parts_2;
      ++tile;
    }
  }
};

// One warp's ring. The producer is lane 0.
template <int kStages>
struct Ring {
  unsigned char* stages;
  uint32_t barriers;  // Shared address of kStages barriers.
  Walk producer;
  int filled = 0;  // Stages asked for so far.
  int fill_slot = 0;
  int used = 0;  // Stages consumed so far.
  int use_slot = 0;
  uint32_t parity = 0;

  __device__ void Fill(const FusedMoeArguments& p, const WorkShape& w, const int* tile_expert,
                       int lane) {
    if (lane != 0) {
      return;
    }
    while (filled < used + kStages) {
      const unsigned char* from = nullptr;
      const int num_blocks = producer.Next(p, w, tile_expert, from);
      if (num_blocks == 0) {
        return;
      }
      const uint32_t bytes = static_cast<uint32_t>(num_blocks * kPanelBytes);
      const uint32_t barrier = barriers + 8 * fill_slot;
      ArriveExpecting(barrier, bytes);
      BulkCopy(SharedAddress(stages + fill_slot * kStageBytes), from, bytes, barrier);
      fill_slot = fill_slot + 1 == kStages ? 0 : fill_slot + 1;
      ++filled;
    }
  }

  __device__ const unsigned char* Wait() const {
    WaitBarrier(barriers + 8 * use_slot, parity);
    return stages + use_slot * kStageBytes;
  }

  // All lanes have read the stage: it may be filled again.
  __device__ void Release(const FusedMoeArguments& p, const WorkShape& w, const int* tile_expert,
                          int lane) {
    __syncwarp();
    ++used;
    if (++use_slot == kStages) {
      use_slot = 0;
      parity ^= 1u;
    }
    Fill(p, w, tile_expert, lane);
  }
};

// A lane's 8 + 8 input features of one token for kFeatureBlocks k blocks. Lanes without a token
// keep the zeros they start with.
struct Features {
  uint4 of[kFeatureBlocks][2] = {};

  // `row` is the token's row plus 8 q features. Blocks from `num_blocks` on are not read: the
  // caller does not use them. `kCached`: the data was there before the launch and may come through
  // the read-only path.
  template <bool kCached>
  __device__ void Load(const uint4* row, bool has_token, int num_blocks) {
#pragma unroll
    for (int b = 0; b < kFeatureBlocks; ++b) {
      if (has_token && b < num_blocks) {
        of[b][0] = kCached ? __ldg(row + 8 * b) : __ldcg(row + 8 * b);
        of[b][1] = kCached ? __ldg(row + 8 * b + 4) : __ldcg(row + 8 * b + 4);
      }
    }
  }
};

// Multiplies one stage of `num_blocks` k blocks with the features from `row` on. `next` holds the
// first kFeatureBlocks blocks' features; at the end it holds those of `next_row`, for which the
// loads are issued before the last products.
template <bool kCached>
__device__ inline void MultiplyStage(const unsigned char* stage, int lane, int num_blocks,
                                     const uint4* row, bool has_token, const uint4* next_row,
                                     bool next_has_token, int next_blocks, Features& next,
                                     float (&sum)[4]) {
  static_assert(kStageBlocks == 2 * kFeatureBlocks);
  Features second;
  second.Load<kCached>(row + 8 * kFeatureBlocks, has_token, num_blocks - kFeatureBlocks);
#pragma unroll
  for (int b = 0; b < kFeatureBlocks; ++b) {
    if (b < num_blocks) {
      MultiplyPanel(stage + b * kPanelBytes, lane, next.of[b][0], next.of[b][1], sum);
    }
  }
  Features third;
  third.Load<kCached>(next_row, next_has_token, next_blocks);
#pragma unroll
  for (int b = 0; b < kFeatureBlocks; ++b) {
    if (b + kFeatureBlocks < num_blocks) {
      MultiplyPanel(stage + (b + kFeatureBlocks) * kPanelBytes, lane, second.of[b][0],
                    second.of[b][1], sum);
    }
  }
  next = third;
}

__device__ inline float Silu(float x) { return x / (1.0f + __expf(-x)); }

// ---- Kernel -------------------------------------------------------------------------------------

template <int kStages>
__global__ void __launch_bounds__(kThreads, 2) FusedMoeKernel(const FusedMoeArguments p) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const SharedLayout at = MakeSharedLayout(p.num_tokens, p.top_k, p.num_local_experts, kStages);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int q = lane % 4;
  auto* reduction = reinterpret_cast<float*>(shared_memory + at.reduction);
  auto* sums = reinterpret_cast<float*>(shared_memory + at.sums);
  auto* tile_expert = reinterpret_cast<int*>(shared_memory + at.tile_expert);
  auto* tile_begin = reinterpret_cast<int*>(shared_memory + at.tile_begin);
  auto* pairs = reinterpret_cast<int*>(shared_memory + at.pairs);

  Ring<kStages> ring;
  ring.stages = shared_memory + at.ring + warp * kStages * kStageBytes;
  ring.barriers = SharedAddress(shared_memory + at.barriers) + warp * kStages * 8;
  if (lane == 0) {
    for (int i = 0; i < kStages; ++i) {
      InitBarrier(ring.barriers + 8 * i, 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  const int num_tiles = MakeTiles(p, reinterpret_cast<int*>(shared_memory + at.counts), pairs,
                                  tile_expert, tile_begin);
  WorkShape w;
  w.num_tiles = num_tiles;
  w.row_blocks_1 = p.intermediate / 8;
  w.k_blocks_1 = p.hidden / kPanelK;
  w.k_begin_1 = warp * w.k_blocks_1 / kWarps;
  w.k_end_1 = (warp + 1) * w.k_blocks_1 / kWarps;
  const int num_items = num_tiles * w.row_blocks_1;
  w.num_items_1 = w.k_begin_1 == w.k_end_1 ? 0 : num_items;
  w.row_blocks_2 = p.hidden / kRowBlock;
  w.k_blocks_2 = p.intermediate / kPanelK;
  w.parts_2 = (w.k_blocks_2 + kStageBlocks - 1) / kStageBlocks;
  w.tile_step_2 = kWarps / w.parts_2;
  w.part_step_2 = kWarps % w.parts_2;
  w.first_tile_2 = warp / w.parts_2;
  w.first_part_2 = warp % w.parts_2;
  ring.producer.item = static_cast<int>(blockIdx.x);
  ring.producer.StartItem(p, w, tile_expert);
  ring.Fill(p, w, tile_expert, lane);

  // Phase 1.
  int parity = 0;
  for (int item = static_cast<int>(blockIdx.x); item < num_items;
       item += static_cast<int>(gridDim.x)) {
    const int tile = item / w.row_blocks_1;
    const int row_block = item - tile * w.row_blocks_1;
    const int begin = tile_begin[tile];
    const int count = min(kTileTokens, tile_begin[tile + 1] - begin);
    const bool has_token = g < count;
    const int token = has_token ? pairs[begin + g] / p.top_k : 0;
    const uint4* x = reinterpret_cast<const uint4*>(p.in + static_cast<int64_t>(token) * p.hidden +
                                                    w.k_begin_1 * kPanelK + 8 * q);
    float sum[4] = {0, 0, 0, 0};
    Features next;
    next.Load<true>(x, has_token, w.k_end_1 - w.k_begin_1);
    for (int k_block = w.k_begin_1; k_block < w.k_end_1; k_block += kStageBlocks) {
      const unsigned char* stage = ring.Wait();
      const uint4* next_x = x + 8 * kStageBlocks;
      MultiplyStage<true>(stage, lane, w.k_end_1 - k_block, x, has_token, next_x, has_token,
                          w.k_end_1 - k_block - kStageBlocks, next, sum);
      x = next_x;
      ring.Release(p, w, tile_expert, lane);
    }
    // [row r][token n] of every warp's part; then one thread a (feature, token).
    float* part = reduction + parity * kWarps * 128 + warp * 128;
    part[g * 8 + 2 * q] = sum[0];
    part[g * 8 + 2 * q + 1] = sum[1];
    part[(g + 8) * 8 + 2 * q] = sum[2];
    part[(g + 8) * 8 + 2 * q + 1] = sum[3];
    __syncthreads();
    if (threadIdx.x < 64) {
      const int feature = static_cast<int>(threadIdx.x) / 8;
      const int n = static_cast<int>(threadIdx.x) % 8;
      const float* all = reduction + parity * kWarps * 128;
      float gate = 0;
      float up = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) {
        gate += all[i * 128 + feature * 8 + n];
        up += all[i * 128 + (feature + 8) * 8 + n];
      }
      if (n < count) {
        p.act[static_cast<int64_t>(pairs[begin + n]) * p.intermediate + row_block * 8 + feature] =
            __float2bfloat16_rn(Silu(gate) * up);
      }
    }
    parity ^= 1;
  }
  // The first stages of phase 2 are on their way already.
  MeetGrid(p.barrier);

  // Phase 2.
  float* own = sums + warp * p.num_tokens * 16;
  for (int i = lane; i < p.num_tokens * 16; i += 32) {
    own[i] = 0;
  }
  __syncwarp();
  for (int row_block = static_cast<int>(blockIdx.x); row_block < w.row_blocks_2;
       row_block += static_cast<int>(gridDim.x)) {
    int tile = w.first_tile_2;
    int part = w.first_part_2;
    // Row of the activations of this lane's token in a unit, and whether there is one.
    const auto row_of = [&](int of_tile, int of_part, bool& has) {
      const int of_begin = tile_begin[min(of_tile, num_tiles - 1)];
      has = of_tile < num_tiles && g < min(kTileTokens, tile_begin[of_tile + 1] - of_begin);
      const int pair = has ? pairs[of_begin + g] : 0;
      return reinterpret_cast<const uint4*>(p.act + static_cast<int64_t>(pair) * p.intermediate +
                                            of_part * kStageBlocks * kPanelK + 8 * q);
    };
    bool has_token = false;
    const uint4* x = row_of(tile, part, has_token);
    Features next;
    next.Load<false>(x, has_token, w.k_blocks_2 - part * kStageBlocks);
    while (tile < num_tiles) {
      const int this_tile = tile;
      const int num_blocks = w.k_blocks_2 - part * kStageBlocks;
      Walk::StepUnit(w, tile, part);
      bool next_has_token = false;
      const uint4* next_x = row_of(tile, part, next_has_token);
      float sum[4] = {0, 0, 0, 0};
      const unsigned char* stage = ring.Wait();
      MultiplyStage<false>(stage, lane, num_blocks, x, has_token, next_x, next_has_token,
                           w.k_blocks_2 - part * kStageBlocks, next, sum);
      x = next_x;
      has_token = next_has_token;
      ring.Release(p, w, tile_expert, lane);
      const int begin = tile_begin[this_tile];
      const int count = min(kTileTokens, tile_begin[this_tile + 1] - begin);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        if (2 * q + n < count) {
          const int of_pair = pairs[begin + 2 * q + n];
          const float weight = __ldg(p.expert_weights + of_pair);
          float* of_token = own + of_pair / p.top_k * 16;
          of_token[g] += weight * sum[n];
          of_token[g + 8] += weight * sum[2 + n];
        }
      }
      __syncwarp();
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < p.num_tokens * 16; i += kThreads) {
      const int token = i / 16;
      const int64_t to = static_cast<int64_t>(token) * p.hidden + row_block * 16 + i % 16;
      float total = p.shared != nullptr ? __bfloat162float(p.shared[to]) : 0.0f;
#pragma unroll
      for (int k = 0; k < kWarps; ++k) {
        total += sums[k * p.num_tokens * 16 + i];
        sums[k * p.num_tokens * 16 + i] = 0;
      }
      p.out[to] = __float2bfloat16_rn(total);
    }
    __syncthreads();
  }
}

}  // namespace fused_moe
}  // namespace lastflop
