#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/panel.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/permute/permute_cuda.h"

// The grouped GEMM's device code. docs/kernels/grouped_gemm.md has the floor and the reasons.
//
// Persistent blocks of 9 warps. A work item is (tile of up to 8 * kTokenTiles pairs of one expert,
// some row blocks of 16 output features). The last warp is the producer: it walks over the block's
// items and copies stages of weights and activations into a ring in shared memory, several stages
// ahead and across the borders of items, so that memory never waits for a reduction. The other
// eight multiply: kWarpsK of them split the input features of a stage, the rest its row blocks.
// Weights arrive in the order of the A fragments; a lane's activations are 16-byte words.
//
// int4: nibbles become bf16 128 + n by one instruction a pair. Where a warp has one token tile, the
// offset of 136 is taken off by a product of the activations with -136, shared by the warp's row
// blocks; where it has more, by a subtraction. Each group's sum is scaled in fp32.
namespace lastflop {

struct GroupedGemmArguments {
  const CudaTile* tiles;
  const int32_t* num_tiles;
  const int32_t* tile_prefix;
  const int32_t* token;  // Null: row p of `in` is pair p.
  const unsigned char* panels;
  const __nv_bfloat16* in;
  __nv_bfloat16* out;
  int64_t matrix_bytes;
  int max_tiles;
  int rows;        // Output features.
  int k;           // Input features.
  int k_blocks;    // Of 64 features.
  int row_blocks;  // Of 16 rows.
  int num_n;       // Work items of a tile.
  int group_m;     // Tiles of an expert that share a walk over n; 0: all (column_major).
  int stages;
  int row_order;   // CudaRowOrder
  int swiglu;      // 1: `out` is [pairs, rows / 2], silu(gate) * up. Rows in kGateAndUp order.
  int cache_hint;  // 0, 1: evict first, 2: evict last.
};

namespace grouped_gemm {

inline constexpr int kConsumers = 8;  // Warps that multiply.
inline constexpr int kThreads = (kConsumers + 1) * 32;
inline constexpr int kConsumerThreads = kConsumers * 32;
inline constexpr int kConsumerBarrier = 1;  // Where the consumers meet.

// What a stage is, from producer to consumers.
struct alignas(16) StageInfo {
  int begin;      // First pair of the tile.
  int count;      // Pairs; 0: there is no more work.
  int row_block;  // First of the item.
  int k_block;    // First of the stage, of 64 features.
};

// Shapes of one build.
template <int kGroupSize, int kWarpsAlongK, int kRowBlocksOfWarp, int kKBlocksOfWarp,
          int kTokenTilesOfWarp>
struct Tiling {
  static constexpr int kGroup = kGroupSize;  // 0: bf16.
  static constexpr int kWarpsK = kWarpsAlongK;
  static constexpr int kWarpsRows = kConsumers / kWarpsK;
  static constexpr int kRowBlocks = kRowBlocksOfWarp;
  static constexpr int kKBlocks = kKBlocksOfWarp;  // Of 64 features, of a warp in a stage.
  static constexpr int kTokenTiles = kTokenTilesOfWarp;
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kItemRowBlocks = kWarpsRows * kRowBlocks;
  static constexpr int kStageKBlocks = kWarpsK * kKBlocks;
  static constexpr int kBlockBytes = PanelBlockBytes(kGroup);
  static constexpr int kBlockK64 = PanelBlockK(kGroup) / 64;  // 64-feature blocks of a panel block.
  static constexpr int kRowBlockBytes = kStageKBlocks / kBlockK64 * kBlockBytes;
  // 64 bytes past a multiple of 128: two tokens' 64 bytes fill all banks once.
  static constexpr int kTokenStride = kStageKBlocks * 128 + 64;
  static constexpr int kWeightBytes = kItemRowBlocks * kRowBlockBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kTokenStride;
  // Sums of the warps along k: [2][kWarpsK][kWarpsRows * kRowBlocks * ...], see Reduce().
  static constexpr int kSumStride = kRowBlocks * kRowBlock * kWarpsRows + 4;
  static constexpr int kReduceBytes = kWarpsK == 1 ? 0 : 2 * kWarpsK * kTokens * kSumStride * 4;
  static_assert(kKBlocks % kBlockK64 == 0);
  static_assert(kStageBytes % 16 == 0);
  static int SharedBytes(int stages) {
    return stages * (kStageBytes + static_cast<int>(sizeof(StageInfo)) + 16) + kReduceBytes;
  }
};

struct SharedLayout {
  unsigned char* stages;
  StageInfo* info;
  float* reduce;
  uint32_t full;  // Shared addresses of barriers, 8 bytes each.
  uint32_t empty;
};

template <typename T>
__device__ inline SharedLayout MakeLayout(unsigned char* memory, int stages) {
  SharedLayout at;
  at.stages = memory;
  unsigned char* next = memory + stages * T::kStageBytes;
  at.reduce = reinterpret_cast<float*>(next);
  next += T::kReduceBytes;
  at.info = reinterpret_cast<StageInfo*>(next);
  next += stages * static_cast<int>(sizeof(StageInfo));
  at.full = SharedAddress(next);
  at.empty = at.full + 8 * static_cast<uint32_t>(stages);
  return at;
}

// ---- Producer -----------------------------------------------------------------------------------

struct Item {
  CudaTile tile;
  int n;
};

// The work item of index `task`; a lane's own. Tasks past the end have count 0.
__device__ inline Item FindItem(const GroupedGemmArguments& p, uint32_t task, uint32_t num_tasks) {
  const auto num_n = static_cast<uint32_t>(p.num_n);
  const uint32_t of_tile = task / num_n;
  Item item{};
  if (of_tile < static_cast<uint32_t>(p.max_tiles)) {
    item.tile = p.tiles[of_tile];  // Does not wait for num_tasks.
  }
  if (task >= num_tasks) {
    item.tile.count = 0;
    return item;
  }
  item.n = static_cast<int>(task - of_tile * num_n);
  if (p.group_m == 1) {
    return item;
  }
  const int num_m = p.tile_prefix[item.tile.expert + 1] - item.tile.first_tile;
  const int group = p.group_m == 0 ? num_m : min(p.group_m, num_m);
  const int in_expert = static_cast<int>(task) - item.tile.first_tile * p.num_n;
  const int first_m = in_expert / (group * p.num_n) * group;
  const int group_size = min(group, num_m - first_m);
  const int in_group = in_expert - first_m * p.num_n;
  item.tile = p.tiles[item.tile.first_tile + first_m + in_group % group_size];
  item.n = in_group / group_size;
  return item;
}

__device__ inline Item Broadcast(const Item& item, int lane) {
  Item out;
  out.tile.expert = __shfl_sync(0xFFFFFFFFu, item.tile.expert, lane);
  out.tile.begin = __shfl_sync(0xFFFFFFFFu, item.tile.begin, lane);
  out.tile.count = __shfl_sync(0xFFFFFFFFu, item.tile.count, lane);
  out.n = __shfl_sync(0xFFFFFFFFu, item.n, lane);
  return out;
}

// Arrivals that fill a stage: with the copy engine one, which also announces the bytes; without it
// one that releases the stage's info, and one a lane after its copies.
#if __CUDA_ARCH__ >= 900
inline constexpr int kFullArrivals = 1;
#else
inline constexpr int kFullArrivals = 33;
#endif

// Where a stage's contents come from. Lane i has token rows i and i + 32.
template <typename T>
struct StageSource {
  static constexpr int kRowsOfLane = (T::kTokens + 31) / 32;
  const unsigned char* weights;
  const unsigned char* rows[kRowsOfLane];
  int64_t row_block_bytes;  // Between row blocks.
  int num_row_blocks;
  int num_tokens;
  int weight_bytes;  // Of a row block.
  int token_bytes;   // Of a token.
};

// Fills a stage whose info lane 0 has written; `full` completes when all is there. From sm_90 on
// lanes hand whole runs to the copy engine; before, the warp copies 16 bytes a lane.
template <typename T>
__device__ inline void FillStage(const StageSource<T>& from, uint32_t to, uint32_t full, int lane,
                                 int cache_hint, uint64_t policy) {
#if __CUDA_ARCH__ >= 900
  if (lane == 0) {
    ArriveExpecting(full, static_cast<uint32_t>(from.num_row_blocks * from.weight_bytes +
                                                from.num_tokens * from.token_bytes));
  }
  __syncwarp();
  if (lane < from.num_row_blocks) {
    const uint32_t at = to + static_cast<uint32_t>(lane * T::kRowBlockBytes);
    const unsigned char* run = from.weights + lane * from.row_block_bytes;
    if (cache_hint != 0) {
      BulkCopy(at, run, static_cast<uint32_t>(from.weight_bytes), full, policy);
    } else {
      BulkCopy(at, run, static_cast<uint32_t>(from.weight_bytes), full);
    }
  }
#pragma unroll
  for (int i = 0; i < StageSource<T>::kRowsOfLane; ++i) {
    const int token = lane + 32 * i;
    if (token < from.num_tokens) {
      BulkCopy(to + static_cast<uint32_t>(T::kWeightBytes + token * T::kTokenStride), from.rows[i],
               static_cast<uint32_t>(from.token_bytes), full);
    }
  }
#else
  for (int r = 0; r < from.num_row_blocks; ++r) {
    for (int i = 16 * lane; i < from.weight_bytes; i += 512) {
      const unsigned char* run = from.weights + r * from.row_block_bytes + i;
      if (cache_hint != 0) {
        CopyAsync16(to + r * T::kRowBlockBytes + i, run, policy);
      } else {
        CopyAsync16(to + r * T::kRowBlockBytes + i, run);
      }
    }
  }
#pragma unroll
  for (int half = 0; half < StageSource<T>::kRowsOfLane; ++half) {
    for (int t = 0; t < min(32, from.num_tokens - 32 * half); ++t) {
      const auto row =
          __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(from.rows[half]), t);
      for (int i = 16 * lane; i < from.token_bytes; i += 512) {
        CopyAsync16(to + T::kWeightBytes + (32 * half + t) * T::kTokenStride + i,
                    reinterpret_cast<const unsigned char*>(row) + i);
      }
    }
  }
  if (lane == 0) {
    Arrive(full);
  }
  ArriveAfterCopies(full);
#endif
}

template <typename T>
class Producer {
 public:
  __device__ Producer(const GroupedGemmArguments& p, const SharedLayout& at)
      : p_(p), at_(at), lane_(static_cast<int>(threadIdx.x) % 32) {
    policy_ = p.cache_hint == 2 ? EvictLastPolicy() : EvictFirstPolicy();
  }

  // Fills stages with all items of the block, then one that says that there are no more.
  __device__ void Run() {
    WaitForEarlierKernels();
    LetNextKernelStart();
    const uint32_t step = gridDim.x;
    const auto lane = static_cast<uint32_t>(lane_);
    const uint32_t num_tasks =
        static_cast<uint32_t>(*p_.num_tiles) * static_cast<uint32_t>(p_.num_n);
    uint32_t base = blockIdx.x;
    Item batch = FindItem(p_, base + lane * step, num_tasks);
    while (base < num_tasks) {
      const Item next_batch = FindItem(p_, base + (32 + lane) * step, num_tasks);
      for (int i = 0; i < 32; ++i) {
        const Item item = Broadcast(batch, i);
        if (item.tile.count == 0) {
          break;
        }
        FillItem(item);
      }
      batch = next_batch;
      base += 32 * step;
    }
    WaitForRoom();
    if (lane_ == 0) {
      at_.info[slot_] = {0, 0, 0, 0};
      Arrive(at_.full + 8 * slot_);
    }
#if __CUDA_ARCH__ < 900
    ArriveAfterCopies(at_.full + 8 * slot_);
#endif
  }

 private:
  __device__ void WaitForRoom() const { WaitBarrier(at_.empty + 8 * slot_, parity_ ^ 1u); }

  __device__ void FillItem(const Item& item) {
    const CudaTile& tile = item.tile;
    const int row_block = item.n * T::kItemRowBlocks;
    const int panel_blocks = (p_.k_blocks + T::kBlockK64 - 1) / T::kBlockK64;
    StageSource<T> from;
    from.row_block_bytes = static_cast<int64_t>(panel_blocks) * T::kBlockBytes;
    from.weights = p_.panels + tile.expert * p_.matrix_bytes + row_block * from.row_block_bytes;
    from.num_row_blocks = min(T::kItemRowBlocks, p_.row_blocks - row_block);
    from.num_tokens = tile.count;
#pragma unroll
    for (int i = 0; i < StageSource<T>::kRowsOfLane; ++i) {
      const int pair = tile.begin + min(lane_ + 32 * i, tile.count - 1);
      const int64_t row = p_.token != nullptr ? __ldg(p_.token + pair) : pair;
      from.rows[i] = reinterpret_cast<const unsigned char*>(p_.in + row * p_.k);
    }
    for (int k_block = 0; k_block < p_.k_blocks; k_block += T::kStageKBlocks) {
      const int num_k_blocks = min(T::kStageKBlocks, p_.k_blocks - k_block);
      from.weight_bytes = (num_k_blocks + T::kBlockK64 - 1) / T::kBlockK64 * T::kBlockBytes;
      from.token_bytes = min(num_k_blocks * 128, (p_.k - k_block * 64) * 2);
      WaitForRoom();
      if (lane_ == 0) {
        at_.info[slot_] = {tile.begin, tile.count, row_block, k_block};
      }
      FillStage<T>(from, SharedAddress(at_.stages + slot_ * T::kStageBytes), at_.full + 8 * slot_,
                   lane_, p_.cache_hint, policy_);
      from.weights += T::kRowBlockBytes;
#pragma unroll
      for (int i = 0; i < StageSource<T>::kRowsOfLane; ++i) {
        from.rows[i] += T::kStageKBlocks * 128;
      }
      if (++slot_ == p_.stages) {
        slot_ = 0;
        parity_ ^= 1u;
      }
    }
  }

  const GroupedGemmArguments& p_;
  const SharedLayout& at_;
  const int lane_;
  uint64_t policy_;
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// ---- Consumers ----------------------------------------------------------------------------------

// A lane's activations of 32 features of its token of each token tile: steps 2 j and 2 j + 1.
template <typename T>
struct TokenWords {
  uint4 of[T::kTokenTiles];

  __device__ void Load(const unsigned char* at) {
#pragma unroll
    for (int t = 0; t < T::kTokenTiles; ++t) {
      of[t] = *reinterpret_cast<const uint4*>(at + t * 8 * T::kTokenStride);
    }
  }
};

template <typename T>
using Sums = float[T::kRowBlocks][T::kTokenTiles][4];

// Adds the product of one group of 32 features of a row block: `words` are the lane's two weight
// words, `scales` the bf16 scales of rows g and g + 8.
template <typename T>
__device__ inline void MultiplyInt4(uint32_t word0, uint32_t word1, uint32_t scales,
                                    const TokenWords<T>& x, const float (&offsets)[4],
                                    float (&sums)[T::kTokenTiles][4]) {
  constexpr bool kOffsetByProduct = T::kTokenTiles == 1;
  const float low = LowBf16(scales);
  const float high = HighBf16(scales);
  uint32_t a[4];
  uint32_t b[4];
  if constexpr (kOffsetByProduct) {
    NibblesPlus128(word0, a);
    NibblesPlus128(word1, b);
  } else {
    NibblesToValues(word0, a);
    NibblesToValues(word1, b);
  }
#pragma unroll
  for (int t = 0; t < T::kTokenTiles; ++t) {
    float part[4];
    if constexpr (kOffsetByProduct) {
      MmaFrom(part, a, x.of[t].x, x.of[t].y, offsets);
    } else {
      MmaFirst(part, a, x.of[t].x, x.of[t].y);
    }
    Mma(part, b, x.of[t].z, x.of[t].w);
    sums[t][0] += low * part[0];
    sums[t][1] += low * part[1];
    sums[t][2] += high * part[2];
    sums[t][3] += high * part[3];
  }
}

// A lane's weight words and scales of 64 features of the warp's row blocks.
template <typename T>
struct WeightWords {
  uint4 of[T::kRowBlocks];
  uint2 scales[T::kRowBlocks];  // Of the two groups of 32.

  // `half` of a block of group 128.
  __device__ void Load(const unsigned char* at, int half, int lane) {
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      const unsigned char* block = at + r * T::kRowBlockBytes;
      of[r] = *reinterpret_cast<const uint4*>(block + 512 * half + 16 * lane);
      if constexpr (T::kGroup == 32) {
        scales[r] = *reinterpret_cast<const uint2*>(block + 512 + lane / 4 * 8);
      } else {
        scales[r].x = *reinterpret_cast<const uint32_t*>(block + 1024 + lane / 4 * 4);
        scales[r].y = scales[r].x;
      }
    }
  }
};

// Adds the products of a stage's block of 64 features. `weights` is the block of the warp's first
// row block; `x0` and `x1` are the lane's activations of the two groups of 32.
template <typename T>
__device__ inline void MultiplyBlock(const unsigned char* weights, int half,
                                     const unsigned char* x0, const unsigned char* x1, int lane,
                                     Sums<T>& sums) {
  if constexpr (T::kGroup == 0) {
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      TokenWords<T> x;
      x.Load(group == 0 ? x0 : x1);
#pragma unroll
      for (int r = 0; r < T::kRowBlocks; ++r) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const uint4 four = *reinterpret_cast<const uint4*>(weights + r * T::kRowBlockBytes +
                                                             512 * (2 * group + j) + 16 * lane);
          const uint32_t a[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
          for (int t = 0; t < T::kTokenTiles; ++t) {
            Mma(sums[r][t], a, j == 0 ? x.of[t].x : x.of[t].z, j == 0 ? x.of[t].y : x.of[t].w);
          }
        }
      }
    }
  } else {
    WeightWords<T> words;
    words.Load(weights, half, lane);
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      TokenWords<T> x;
      x.Load(group == 0 ? x0 : x1);
      float offsets[4] = {0, 0, 0, 0};
      if constexpr (T::kTokenTiles == 1) {
        // bf16 -136, twice.
        const uint32_t a[4] = {0xC308C308u, 0xC308C308u, 0xC308C308u, 0xC308C308u};
        MmaFirst(offsets, a, x.of[0].x, x.of[0].y);
        Mma(offsets, a, x.of[0].z, x.of[0].w);
      }
#pragma unroll
      for (int r = 0; r < T::kRowBlocks; ++r) {
        MultiplyInt4<T>(group == 0 ? words.of[r].x : words.of[r].z,
                        group == 0 ? words.of[r].y : words.of[r].w,
                        group == 0 ? words.scales[r].x : words.scales[r].y, x, offsets, sums[r]);
      }
    }
  }
}

// First output feature of rows 0 to 7 (`upper` 0) or 8 to 15 of a row block.
__device__ inline int RowOfBlock(const GroupedGemmArguments& p, int row_block, int upper) {
  return p.row_order == static_cast<int>(CudaRowOrder::kPlain)
             ? row_block * kRowBlock + 8 * upper
             : row_block * 8 + upper * (p.rows / 2);
}

__device__ inline float SiluMul(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }

// Writes a warp's sums, which are complete: a lane has token g of a tile, two neighbouring rows.
template <typename T>
__device__ inline void StoreSums(const GroupedGemmArguments& p, const StageInfo& info,
                                 int row_block, int lane, const Sums<T>& sums) {
  const int g = lane / 4;
  const int q = lane % 4;
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    if (row_block + r >= p.row_blocks) {
      return;
    }
#pragma unroll
    for (int t = 0; t < T::kTokenTiles; ++t) {
      const float(&sum)[4] = sums[r][t];
      const int64_t pair = info.begin + 8 * t + g;
      const bool is_pair = 8 * t + g < info.count;
      if (p.swiglu != 0) {
        const uint32_t act =
            Transpose8x8(PackBf16(SiluMul(sum[0], sum[2]), SiluMul(sum[1], sum[3])));
        if (is_pair) {
          *reinterpret_cast<uint32_t*>(p.out + pair * (p.rows / 2) + (row_block + r) * 8 + 2 * q) =
              act;
        }
        continue;
      }
      const uint32_t low = Transpose8x8(PackBf16(sum[0], sum[1]));
      const uint32_t high = Transpose8x8(PackBf16(sum[2], sum[3]));
      if (is_pair) {
        __nv_bfloat16* row = p.out + pair * p.rows + 2 * q;
        *reinterpret_cast<uint32_t*>(row + RowOfBlock(p, row_block + r, 0)) = low;
        *reinterpret_cast<uint32_t*>(row + RowOfBlock(p, row_block + r, 1)) = high;
      }
    }
  }
}

// Two neighbouring rows of a token, summed over the warps along k.
template <typename T>
__device__ inline float2 SumOfWarps(const float* at) {
  float2 sum = {0, 0};
#pragma unroll
  for (int w = 0; w < T::kWarpsK; ++w) {
    const float2 two = *reinterpret_cast<const float2*>(at + w * T::kTokens * T::kSumStride);
    sum.x += two.x;
    sum.y += two.y;
  }
  return sum;
}

// Sums over the warps along k and writes: [warp][token][row of the item] in shared memory, then one
// thread an output. `parity` alternates between two buffers, so that one meeting is enough.
template <typename T>
__device__ inline void ReduceAndStore(const GroupedGemmArguments& p, const StageInfo& info,
                                      float* buffer, int parity, const Sums<T>& sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int g = lane / 4;
  const int q = lane % 4;
  constexpr int kBuffer = T::kWarpsK * T::kTokens * T::kSumStride;
  float* all = buffer + parity * kBuffer;
  float* own = all + warp % T::kWarpsK * T::kTokens * T::kSumStride +
               warp / T::kWarpsK * T::kRowBlocks * kRowBlock;
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
#pragma unroll
    for (int t = 0; t < T::kTokenTiles; ++t) {
      float* at = own + (8 * t + 2 * q) * T::kSumStride + r * kRowBlock + g;
      at[0] = sums[r][t][0];
      at[T::kSumStride] = sums[r][t][1];
      at[8] = sums[r][t][2];
      at[T::kSumStride + 8] = sums[r][t][3];
    }
  }
  MeetThreads(kConsumerBarrier, kConsumerThreads);
  // Two rows a thread; with swiglu they are gate's, and up's are 8 further.
  const int pairs_of_rows = T::kItemRowBlocks * (p.swiglu != 0 ? 4 : 8);
  for (int i = thread; i < info.count * pairs_of_rows; i += kConsumerThreads) {
    const int token = i / pairs_of_rows;
    const int pair_of_rows = i % pairs_of_rows;
    const int64_t pair = info.begin + token;
    if (p.swiglu != 0) {
      const int block = pair_of_rows / 4;
      const int row = pair_of_rows % 4 * 2;
      if (info.row_block + block < p.row_blocks) {
        const float* at = all + token * T::kSumStride + block * kRowBlock + row;
        const float2 gate = SumOfWarps<T>(at);
        const float2 up = SumOfWarps<T>(at + 8);
        *reinterpret_cast<uint32_t*>(p.out + pair * (p.rows / 2) + (info.row_block + block) * 8 +
                                     row) = PackBf16(SiluMul(gate.x, up.x), SiluMul(gate.y, up.y));
      }
      continue;
    }
    const int row = pair_of_rows * 2;
    const int row_block = info.row_block + row / kRowBlock;
    if (row_block < p.row_blocks) {
      const float2 sum = SumOfWarps<T>(all + token * T::kSumStride + row);
      const int to = RowOfBlock(p, row_block, row % kRowBlock / 8) + row % 8;
      *reinterpret_cast<uint32_t*>(p.out + pair * p.rows + to) = PackBf16(sum.x, sum.y);
    }
  }
}

template <typename T>
__device__ inline void Consume(const GroupedGemmArguments& p, const SharedLayout& at) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_k = warp % T::kWarpsK;
  const int warp_row = warp / T::kWarpsK;
  const int weights_at = warp_row * T::kRowBlocks * T::kRowBlockBytes +
                         warp_k * (T::kKBlocks / T::kBlockK64) * T::kBlockBytes;
  const int row_at = T::kWeightBytes + lane / 4 * T::kTokenStride;
  const int token_at = row_at + warp_k * T::kKBlocks * 128 + 16 * (lane % 4);
  // Where k ends inside a block, lanes past it read the zeros behind the token's row.
  const int last_k_block = p.k % 64 != 0 ? p.k_blocks - 1 : -1;
  const int features = p.k % 64;
  const int zeros_at = row_at + T::kStageKBlocks * 128;
  int slot = 0;
  uint32_t parity = 0;
  int reduce_parity = 0;
  Sums<T> sums = {};
  while (true) {
    WaitBarrier(at.full + 8 * slot, parity);
    const StageInfo info = at.info[slot];
    if (info.count == 0) {
      return;
    }
    const unsigned char* stage = at.stages + slot * T::kStageBytes;
#pragma unroll
    for (int b = 0; b < T::kKBlocks; ++b) {
      const int k_block = info.k_block + warp_k * T::kKBlocks + b;
      if (k_block < p.k_blocks && info.row_block + warp_row * T::kRowBlocks < p.row_blocks) {
        int x0 = token_at + 128 * b;
        int x1 = x0 + 64;
        if (k_block == last_k_block) {
          x0 = 8 * (lane % 4) < features ? x0 : zeros_at;
          x1 = 8 * (lane % 4) + 32 < features ? x1 : zeros_at;
        }
        MultiplyBlock<T>(stage + weights_at + b / T::kBlockK64 * T::kBlockBytes, b % T::kBlockK64,
                         stage + x0, stage + x1, lane, sums);
      }
    }
    __syncwarp();
    if (lane == 0) {
      Arrive(at.empty + 8 * slot);
    }
    if (++slot == p.stages) {
      slot = 0;
      parity ^= 1u;
    }
    if (info.k_block + T::kStageKBlocks >= p.k_blocks) {
      if constexpr (T::kWarpsK == 1) {
        StoreSums<T>(p, info, info.row_block + warp_row * T::kRowBlocks, lane, sums);
      } else {
        ReduceAndStore<T>(p, info, at.reduce, reduce_parity, sums);
        reduce_parity ^= 1;
      }
#pragma unroll
      for (int r = 0; r < T::kRowBlocks; ++r) {
#pragma unroll
        for (int t = 0; t < T::kTokenTiles; ++t) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums[r][t][i] = 0;
          }
        }
      }
    }
  }
}

template <typename T, int kBlocksPerSm>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    GroupedGemmKernel(const GroupedGemmArguments p) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const SharedLayout at = MakeLayout<T>(shared_memory, p.stages);
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      InitBarrier(at.full + 8 * i, kFullArrivals);
      InitBarrier(at.empty + 8 * i, kConsumers);
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  for (int i = static_cast<int>(threadIdx.x); i < p.stages * T::kTokens * 16; i += kThreads) {
    // The 64 bytes behind each token's row.
    unsigned char* row = at.stages + i / (T::kTokens * 16) * T::kStageBytes + T::kWeightBytes +
                         i / 16 % T::kTokens * T::kTokenStride;
    reinterpret_cast<uint32_t*>(row + T::kStageKBlocks * 128)[i % 16] = 0;
  }
  __syncthreads();
  if (threadIdx.x / 32 == kConsumers) {
    Producer<T>(p, at).Run();
  } else {
    Consume<T>(p, at);
  }
}

}  // namespace grouped_gemm
}  // namespace lastflop
