#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/panel.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/permute/permute_cuda.h"

// The grouped GEMM's device code. docs/kernels/grouped_gemm.md has the floor and the reasons.
//
// Persistent blocks. A work item is (tile of up to 8 * kTokenTiles pairs of one expert, some row
// blocks of 16 output features). The last warp is the producer: it walks over the block's items and
// copies stages of weights and activations into a ring in shared memory, several stages ahead and
// across the borders of items, so that memory never waits for a reduction. The others multiply:
// kWarpsK of them split the input features of a stage, the rest its row blocks.
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
  int mean_tiles;  // Of a uniform routing, about.
  int rows;        // Output features.
  int k;           // Input features.
  int k_blocks;    // Of 64 features.
  int row_blocks;  // Of 16 rows.
  int num_n;       // Work items of a tile.
  int group_m;     // Tiles of an expert that share a walk over n; 0: all (column_major).
  int stages;
  int row_order;      // CudaRowOrder
  int swiglu;         // 1: `out` is [pairs, rows / 2], silu(gate) * up. Rows in kGateAndUp order.
  int early_weights;  // 1: tiles and weights are older than the kernel before this one.
  int cache_hint;     // 0, 1: evict first, 2: evict last.
};

namespace grouped_gemm {

inline constexpr int kConsumers = 8;  // Warps that multiply; one more copies.
inline constexpr int kThreads = (kConsumers + 1) * 32;
inline constexpr int kConsumerThreads = kConsumers * 32;
inline constexpr int kConsumerBarrier = 1;  // Where the consumers meet.

// What a stage is, from producer to consumers.
struct alignas(16) StageInfo {
  int begin;      // First pair of the tile.
  int count;      // Pairs; 0: there is no more work.
  int row_block;  // First of the item.
  int unused;
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
  // Sums of the warps along k: [kWarpsK][kTokens][rows of an item].
  static constexpr int kSumStride = kItemRowBlocks * kRowBlock + 4;
  static constexpr int kReduceBytes = kWarpsK == 1 ? 0 : kWarpsK * kTokens * kSumStride * 4;
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

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
inline constexpr bool kHasCopyEngine = true;
#else
inline constexpr bool kHasCopyEngine = false;
#endif

// Arrivals that fill a stage: one that releases the stage's info and announces the engine's bytes;
// without the engine, also one a lane after its copies.
inline constexpr int kFullArrivals = kHasCopyEngine ? 1 : 33;

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

// The weights of a stage by the copy engine, in one run where row blocks follow each other.
template <typename T>
__device__ inline void CopyWeights(const StageSource<T>& from, uint32_t to, uint32_t full, int lane,
                                   int cache_hint, uint64_t policy) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const bool is_one_run = from.row_block_bytes == T::kRowBlockBytes;
  const int num_runs = is_one_run ? 1 : from.num_row_blocks;
  const int run_bytes = is_one_run ? from.num_row_blocks * T::kRowBlockBytes : from.weight_bytes;
  if (lane < num_runs) {
    const uint32_t at = to + static_cast<uint32_t>(lane * T::kRowBlockBytes);
    const unsigned char* run = from.weights + lane * from.row_block_bytes;
    if (cache_hint != 0) {
      BulkCopy(at, run, static_cast<uint32_t>(run_bytes), full, policy);
    } else {
      BulkCopy(at, run, static_cast<uint32_t>(run_bytes), full);
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
#endif
}

// The tokens' rows of a stage.
template <typename T>
__device__ inline void CopyTokens(const StageSource<T>& from, uint32_t to, uint32_t full,
                                  int lane) {
  const uint32_t first = to + T::kWeightBytes;
#pragma unroll
  for (int half = 0; half < StageSource<T>::kRowsOfLane; ++half) {
    if constexpr (!kHasCopyEngine) {
      const int count = min(32, from.num_tokens - 32 * half);
#pragma unroll 4
      for (int t = 0; t < count; ++t) {
        const auto row =
            __shfl_sync(0xFFFFFFFFu, reinterpret_cast<unsigned long long>(from.rows[half]), t);
        for (int i = 16 * lane; i < from.token_bytes; i += 512) {
          CopyAsync16(first + (32 * half + t) * T::kTokenStride + i,
                      reinterpret_cast<const unsigned char*>(row) + i);
        }
      }
    } else {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
      const int token = lane + 32 * half;
      if (token < from.num_tokens) {
        BulkCopy(first + static_cast<uint32_t>(token * T::kTokenStride), from.rows[half],
                 static_cast<uint32_t>(from.token_bytes), full);
      }
#endif
    }
  }
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
    if (p_.early_weights != 0) {
      // The first stages' weights, while earlier kernels end; their tokens follow.
      Walk</*kOnlyEarly=*/true>();
      num_early_ = filled_;
      filled_ = 0;
      slot_ = 0;
      parity_ = 0;
    }
    WaitForEarlierKernels();
    LetNextKernelStart();
    Walk</*kOnlyEarly=*/false>();
    WaitForRoom();
    if (lane_ == 0) {
      at_.info[slot_] = {0, 0, 0, 0};
      Arrive(at_.full + 8 * slot_);
    }
    if constexpr (!kHasCopyEngine) {
      ArriveAfterCopies(at_.full + 8 * slot_);
    }
  }

 private:
  __device__ void WaitForRoom() const { WaitBarrier(at_.empty + 8 * slot_, parity_ ^ 1u); }

  template <bool kOnlyEarly>
  __device__ void Walk() {
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
        FillItem<kOnlyEarly>(item);
        if (kOnlyEarly && filled_ == p_.stages) {
          return;
        }
      }
      batch = next_batch;
      base += 32 * step;
    }
  }

  template <bool kOnlyEarly>
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
      FillStage<kOnlyEarly>(from, {tile.begin, tile.count, row_block, 0});
      if (kOnlyEarly && filled_ == p_.stages) {
        return;
      }
      from.weights += T::kRowBlockBytes;
#pragma unroll
      for (int i = 0; i < StageSource<T>::kRowsOfLane; ++i) {
        from.rows[i] += T::kStageKBlocks * 128;
      }
    }
  }

  // `full` of the stage completes when its info, weights and tokens are there.
  template <bool kOnlyEarly>
  __device__ void FillStage(const StageSource<T>& from, const StageInfo& info) {
    const uint32_t to = SharedAddress(at_.stages + slot_ * T::kStageBytes);
    const uint32_t full = at_.full + 8 * slot_;
    if (kOnlyEarly || filled_ >= num_early_) {
      WaitForRoom();
      if (lane_ == 0) {
        at_.info[slot_] = info;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
        ArriveExpecting(full, static_cast<uint32_t>(from.num_row_blocks * from.weight_bytes +
                                                    from.num_tokens * from.token_bytes));
#else
        Arrive(full);
#endif
      }
      __syncwarp();
      CopyWeights<T>(from, to, full, lane_, p_.cache_hint, policy_);
    }
    if (!kOnlyEarly) {
      CopyTokens<T>(from, to, full, lane_);
      if constexpr (!kHasCopyEngine) {
        ArriveAfterCopies(full);
      }
    }
    ++filled_;
    if (++slot_ == p_.stages) {
      slot_ = 0;
      parity_ ^= 1u;
    }
  }

  const GroupedGemmArguments& p_;
  const SharedLayout& at_;
  const int lane_;
  uint64_t policy_;
  int num_early_ = 0;  // Stages whose weights were asked for before earlier kernels ended.
  int filled_ = 0;     // Stages so far.
  int slot_ = 0;
  uint32_t parity_ = 0;
};

// ---- Consumers ----------------------------------------------------------------------------------

template <typename T>
using Sums = float[T::kRowBlocks][T::kTokenTiles][4];

// Shared addresses of what a lane reads of a stage: of its first block of 64 features and, for
// tokens, of its first token tile.
struct StageAddresses {
  uint32_t weights;
  uint32_t scales;
  uint32_t tokens;
};

// A lane's int4 weight words and scales of 64 features of the warp's row blocks.
template <typename T>
struct WeightWords {
  uint4 of[T::kRowBlocks];
  uint2 scales[T::kRowBlocks];  // Of the two groups of 32.

  __device__ void Load(uint32_t weights_at, uint32_t scales_at) {
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      of[r] = LoadShared16(weights_at + r * T::kRowBlockBytes);
      if constexpr (T::kGroup == 32) {
        scales[r] = LoadShared8(scales_at + r * T::kRowBlockBytes);
      } else {
        scales[r].x = scales[r].y = LoadShared4(scales_at + r * T::kRowBlockBytes);
      }
    }
  }
};

// A fragments of a group of 32 features of a row block, and its scales of rows g and g + 8.
struct GroupFragments {
  uint32_t first[4];
  uint32_t second[4];
  float low;
  float high;

  // kWithOffset: values are 136 too large.
  template <bool kWithOffset>
  __device__ void Make(uint32_t word0, uint32_t word1, uint32_t scales) {
    if constexpr (kWithOffset) {
      NibblesPlus128(word0, first);
      NibblesPlus128(word1, second);
    } else {
      NibblesToValues(word0, first);
      NibblesToValues(word1, second);
    }
    low = LowBf16(scales);
    high = HighBf16(scales);
  }
};

// bf16 -136 in all places of an A fragment, kept in registers.
struct MinusOffset {
  uint32_t a[4];
  __device__ MinusOffset() {
#pragma unroll
    for (uint32_t& pair : a) {
      asm volatile("mov.b32 %0, 0xC308C308;" : "=r"(pair));
    }
  }
};

// Adds the products of a group of 32 features of int4 weights; `x_at` is the address of the lane's
// activations of its first token.
template <typename T>
__device__ inline void MultiplyGroup(const WeightWords<T>& words, int group, uint32_t x_at,
                                     const MinusOffset& minus, Sums<T>& sums) {
  constexpr bool kOffsetByProduct = T::kTokenTiles == 1;
  GroupFragments a[T::kRowBlocks];
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    a[r].template Make<kOffsetByProduct>(group == 0 ? words.of[r].x : words.of[r].z,
                                         group == 0 ? words.of[r].y : words.of[r].w,
                                         group == 0 ? words.scales[r].x : words.scales[r].y);
  }
#pragma unroll
  for (int t = 0; t < T::kTokenTiles; ++t) {
    const uint4 x = LoadShared16(x_at + t * 8 * T::kTokenStride);
    float offsets[4] = {0, 0, 0, 0};
    if constexpr (kOffsetByProduct) {
      MmaFirst(offsets, minus.a, x.x, x.y);
      Mma(offsets, minus.a, x.z, x.w);
    }
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      float part[4];
      if constexpr (kOffsetByProduct) {
        MmaFrom(part, a[r].first, x.x, x.y, offsets);
      } else {
        MmaFirst(part, a[r].first, x.x, x.y);
      }
      Mma(part, a[r].second, x.z, x.w);
      sums[r][t][0] += a[r].low * part[0];
      sums[r][t][1] += a[r].low * part[1];
      sums[r][t][2] += a[r].high * part[2];
      sums[r][t][3] += a[r].high * part[3];
    }
  }
}

// The same of bf16 weights.
template <typename T>
__device__ inline void MultiplyGroupBf16(uint32_t weights, uint32_t x_at, Sums<T>& sums) {
  uint4 a[T::kRowBlocks][2];
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    a[r][0] = LoadShared16(weights + r * T::kRowBlockBytes);
    a[r][1] = LoadShared16(weights + r * T::kRowBlockBytes + 512);
  }
#pragma unroll
  for (int t = 0; t < T::kTokenTiles; ++t) {
    const uint4 x = LoadShared16(x_at + t * 8 * T::kTokenStride);
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      const uint32_t first[4] = {a[r][0].x, a[r][0].y, a[r][0].z, a[r][0].w};
      const uint32_t second[4] = {a[r][1].x, a[r][1].y, a[r][1].z, a[r][1].w};
      Mma(sums[r][t], first, x.x, x.y);
      Mma(sums[r][t], second, x.z, x.w);
    }
  }
}

// Adds the products of a block of 64 features. `x0` and `x1` are the addresses of the lane's
// activations of the two groups of 32.
template <typename T>
__device__ inline void MultiplyBlock(uint32_t weights, uint32_t scales, uint32_t x0, uint32_t x1,
                                     const MinusOffset& minus, Sums<T>& sums) {
  if constexpr (T::kGroup == 0) {
    MultiplyGroupBf16<T>(weights, x0, sums);
    MultiplyGroupBf16<T>(weights + 1024, x1, sums);
  } else {
    WeightWords<T> words;
    words.Load(weights, scales);
    MultiplyGroup<T>(words, 0, x0, minus, sums);
    MultiplyGroup<T>(words, 1, x1, minus, sums);
  }
}

// The products of a warp's part of a stage of which all blocks are whole.
template <typename T>
__device__ inline void MultiplyStage(const StageAddresses& at, const MinusOffset& minus,
                                     Sums<T>& sums) {
#pragma unroll
  for (int b = 0; b < T::kKBlocks; ++b) {
    const uint32_t block = b / T::kBlockK64 * T::kBlockBytes;
    const uint32_t half = b % T::kBlockK64 * 512;
    MultiplyBlock<T>(at.weights + block + half, at.scales + block, at.tokens + 128 * b,
                     at.tokens + 128 * b + 64, minus, sums);
  }
}

// The same where features end: `features` are left from the warp's first block on, and lanes past
// them read the zeros behind the token's row, at `zeros`.
template <typename T>
__device__ inline void MultiplyLastStage(const StageAddresses& at, uint32_t zeros, int features,
                                         int lane, const MinusOffset& minus, Sums<T>& sums) {
#pragma unroll 1
  for (int b = 0; b < T::kKBlocks && 64 * b < features; ++b) {
    const uint32_t block = b / T::kBlockK64 * T::kBlockBytes;
    const uint32_t half = b % T::kBlockK64 * 512;
    const int first = 64 * b + 8 * (lane % 4);
    MultiplyBlock<T>(at.weights + block + half, at.scales + block,
                     first < features ? at.tokens + 128 * b : zeros,
                     first + 32 < features ? at.tokens + 128 * b + 64 : zeros, minus, sums);
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
// thread two rows of a token.
template <typename T>
__device__ inline void ReduceAndStore(const GroupedGemmArguments& p, const StageInfo& info,
                                      float* all, const Sums<T>& sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int g = lane / 4;
  const int q = lane % 4;
  float* own = all + warp % T::kWarpsK * T::kTokens * T::kSumStride +
               warp / T::kWarpsK * T::kRowBlocks * kRowBlock;
  MeetThreads(kConsumerBarrier, kConsumerThreads);  // The item before has been read.
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
  if (p.swiglu != 0) {
    constexpr int kOfToken = T::kItemRowBlocks * 4;
    for (int i = thread; i < info.count * kOfToken; i += kConsumerThreads) {
      const int token = i / kOfToken;
      const int block = i % kOfToken / 4;
      const int row = i % 4 * 2;
      if (info.row_block + block < p.row_blocks) {
        const float* at = all + token * T::kSumStride + block * kRowBlock + row;
        const float2 gate = SumOfWarps<T>(at);
        const float2 up = SumOfWarps<T>(at + 8);
        const int64_t to = static_cast<int64_t>(info.begin + token) * (p.rows / 2) +
                           (info.row_block + block) * 8 + row;
        *reinterpret_cast<uint32_t*>(p.out + to) =
            PackBf16(SiluMul(gate.x, up.x), SiluMul(gate.y, up.y));
      }
    }
    return;
  }
  constexpr int kOfToken = T::kItemRowBlocks * 8;
  for (int i = thread; i < info.count * kOfToken; i += kConsumerThreads) {
    const int token = i / kOfToken;
    const int row = i % kOfToken * 2;
    const int row_block = info.row_block + row / kRowBlock;
    if (row_block < p.row_blocks) {
      const float2 sum = SumOfWarps<T>(all + token * T::kSumStride + row);
      const int64_t to = static_cast<int64_t>(info.begin + token) * p.rows +
                         RowOfBlock(p, row_block, row % kRowBlock / 8) + row % 8;
      *reinterpret_cast<uint32_t*>(p.out + to) = PackBf16(sum.x, sum.y);
    }
  }
}

// Where a consumer stands in the ring. Everything is a shared address.
template <typename T>
struct RingPosition {
  uint32_t offset = 0;  // Of the stage.
  uint32_t full;        // Its barriers.
  uint32_t empty;
  uint32_t info;
  uint32_t parity = 0;
  int slot = 0;

  __device__ explicit RingPosition(const SharedLayout& at)
      : full(at.full), empty(at.empty), info(SharedAddress(at.info)) {}

  __device__ void Release(int stages, int lane) {
    __syncwarp();
    if (lane == 0) {
      Arrive(empty);
    }
    offset += T::kStageBytes;
    full += 8;
    empty += 8;
    info += sizeof(StageInfo);
    if (++slot == stages) {
      offset = 0;
      full -= 8 * static_cast<uint32_t>(stages);
      empty -= 8 * static_cast<uint32_t>(stages);
      info -= sizeof(StageInfo) * static_cast<uint32_t>(stages);
      parity ^= 1u;
      slot = 0;
    }
  }
};

template <typename T>
__device__ inline void Consume(const GroupedGemmArguments& p, const SharedLayout& at) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_k = warp % T::kWarpsK;
  const int warp_row = warp / T::kWarpsK;
  const uint32_t stages_at = SharedAddress(at.stages);
  const uint32_t block_at = stages_at + warp_row * T::kRowBlocks * T::kRowBlockBytes +
                            warp_k * (T::kKBlocks / T::kBlockK64) * T::kBlockBytes;
  const uint32_t row_at = stages_at + T::kWeightBytes + lane / 4 * T::kTokenStride;
  const StageAddresses first = {
      .weights = block_at + 16 * lane,
      .scales = block_at + (T::kGroup == 32 ? 512 + lane / 4 * 8 : 1024 + lane / 4 * 4),
      .tokens = row_at + warp_k * T::kKBlocks * 128 + 16 * (lane % 4)};
  const uint32_t zeros_at = row_at + T::kStageKBlocks * 128;
  const int whole_stages = p.k / (64 * T::kStageKBlocks);
  const int features_left = p.k % (64 * T::kStageKBlocks);  // In a stage after them.
  const MinusOffset minus;
  RingPosition<T> ring(at);
  Sums<T> sums = {};
  while (true) {
    WaitBarrier(ring.full, ring.parity);
    const uint4 words = LoadShared16(ring.info);
    const StageInfo info = {static_cast<int>(words.x), static_cast<int>(words.y),
                            static_cast<int>(words.z), static_cast<int>(words.w)};
    if (info.count == 0) {
      return;
    }
    // Warps whose rows are past the last one multiply what is there and store nothing.
    for (int s = 0; s < whole_stages; ++s) {
      WaitBarrier(ring.full, ring.parity);
      MultiplyStage<T>(
          {first.weights + ring.offset, first.scales + ring.offset, first.tokens + ring.offset},
          minus, sums);
      ring.Release(p.stages, lane);
    }
    if (features_left > 0) {
      WaitBarrier(ring.full, ring.parity);
      MultiplyLastStage<T>(
          {first.weights + ring.offset, first.scales + ring.offset, first.tokens + ring.offset},
          zeros_at + ring.offset, features_left - 64 * warp_k * T::kKBlocks, lane, minus, sums);
      ring.Release(p.stages, lane);
    }
    if constexpr (T::kWarpsK == 1) {
      StoreSums<T>(p, info, info.row_block + warp_row * T::kRowBlocks, lane, sums);
    } else {
      ReduceAndStore<T>(p, info, at.reduce, sums);
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
