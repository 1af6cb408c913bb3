#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/grouped_gemm/grouped_gemm_multiply.cuh"

// The warps that multiply: their walk through the ring, and what becomes of their sums.
namespace lastflop {
namespace grouped_gemm {

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

// What a lane reads of the stage at `offset` of the ring.
__device__ inline StageAddresses AtSlot(const StageAddresses& first, uint32_t offset) {
  return {first.weights + offset, first.scales + offset, first.tokens + offset,
          first.token_scales + offset};
}

template <typename T>
__device__ inline void ScaleSums(float scale, Sums<T>& sums) {
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
#pragma unroll
    for (int t = 0; t < T::kTokenTiles; ++t) {
#pragma unroll
      for (float& sum : sums[r][t]) {
        sum *= scale;
      }
    }
  }
}

template <typename T>
__device__ inline void Consume(const GroupedGemmArguments& p, const SharedLayout& at) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_k = warp % T::kWarpsK;
  const int warp_row = warp / T::kWarpsK;
  const uint32_t stages_at = SharedAddress(at.stages);
  const uint32_t block_at = stages_at + warp_row * T::kRowBlocks * T::kRowBlockBytes +
                            warp_k * (T::kKBlocks / T::kBlockK64) * T::kBlockBytes;
  const uint32_t tokens_at = stages_at + T::kWeightBytes;
  const uint32_t row_at = tokens_at + lane / 4 * T::kTokenStride;
  const uint32_t warp_tokens = warp_k * T::kKBlocks * T::kToken64Bytes;
  const StageAddresses first = {
      .weights = block_at + 16 * lane,
      .scales = block_at + ScalesOffset<T>(lane),
      .tokens = row_at + warp_tokens + (T::kFp8Tokens ? 8 : 16) * (lane % 4),
      .token_scales =
          tokens_at + lane % 4 * 2 * T::kTokenStride + warp_tokens + kQuantizedBlockFeatures};
  const uint32_t zeros_at = row_at + T::kTokenBytes;
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
      MultiplyStage<T>(AtSlot(first, ring.offset), minus, sums);
      ring.Release(p.stages, lane);
    }
    if (features_left > 0) {
      WaitBarrier(ring.full, ring.parity);
      MultiplyLastStage<T>(AtSlot(first, ring.offset), zeros_at + ring.offset,
                           features_left - 64 * warp_k * T::kKBlocks, lane, minus, sums);
      ring.Release(p.stages, lane);
    }
    if constexpr (T::kIsFp4) {
      ScaleSums<T>(p.sum_scale, sums);
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

}  // namespace grouped_gemm
}  // namespace lastflop
