#pragma once

#include <cstdint>

#include "kernels/grouped_gemm/grouped_gemm_shape.cuh"

// The warp that fills the ring.
namespace lastflop {
namespace grouped_gemm {

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
      from.rows[i] = p_.in + row * p_.in_row_bytes;
    }
    for (int k_block = 0; k_block < p_.k_blocks; k_block += T::kStageKBlocks) {
      const int num_k_blocks = min(T::kStageKBlocks, p_.k_blocks - k_block);
      from.weight_bytes = (num_k_blocks + T::kBlockK64 - 1) / T::kBlockK64 * T::kBlockBytes;
      from.token_bytes = T::kFp8Tokens ? num_k_blocks * T::kToken64Bytes
                                       : min(num_k_blocks * 128, (p_.k - k_block * 64) * 2);
      FillStage<kOnlyEarly>(from, {tile.begin, tile.count, row_block, 0});
      if (kOnlyEarly && filled_ == p_.stages) {
        return;
      }
      from.weights += T::kRowBlockBytes;
#pragma unroll
      for (int i = 0; i < StageSource<T>::kRowsOfLane; ++i) {
        from.rows[i] += T::kTokenBytes;
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

}  // namespace grouped_gemm
}  // namespace lastflop
