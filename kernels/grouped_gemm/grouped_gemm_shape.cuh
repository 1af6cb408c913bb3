#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "kernels/cuda/panel.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/permute/permute_cuda.h"
#include "kernels/quantize_rows/quantize_rows_cuda.h"

// What producer and consumers of the grouped GEMM share (grouped_gemm.cuh).
namespace lastflop {

struct GroupedGemmArguments {
  const CudaTile* tiles;
  const int32_t* num_tiles;
  const int32_t* tile_prefix;
  const int32_t* token;  // Null: row p of `in` is pair p.
  const unsigned char* panels;
  const unsigned char* in;  // bf16, or quantized rows (quantize_rows_cuda.h).
  __nv_bfloat16* out;
  int64_t matrix_bytes;
  int64_t in_row_bytes;  // Between rows of `in`.
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
  float sum_scale;    // fp4: what sums are too small by.
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
template <WeightFormat kWeightFormat, int kWarpsAlongK, int kRowBlocksOfWarp, int kKBlocksOfWarp,
          int kTokenTilesOfWarp, bool kTokensAreFp8 = false>
struct Tiling {
  static constexpr WeightFormat kFormat = kWeightFormat;
  static constexpr bool kFp8Tokens = kTokensAreFp8;
  static constexpr bool kIsFp4 = kFormat == WeightFormat::kNvfp4 || kFormat == WeightFormat::kMxfp4;
  static constexpr int kWarpsK = kWarpsAlongK;
  static constexpr int kWarpsRows = kConsumers / kWarpsK;
  static constexpr int kRowBlocks = kRowBlocksOfWarp;
  static constexpr int kKBlocks = kKBlocksOfWarp;  // Of 64 features, of a warp in a stage.
  static constexpr int kTokenTiles = kTokenTilesOfWarp;
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kItemRowBlocks = kWarpsRows * kRowBlocks;
  static constexpr int kStageKBlocks = kWarpsK * kKBlocks;
  static constexpr int kBlockBytes = PanelBlockBytes(kFormat);
  static constexpr int kBlockK64 = PanelBlockK(kFormat) / 64;  // Of 64 features, of a panel block.
  // Of 64 features where a panel block has more of them; its scales follow all weights.
  static constexpr int kHalfBytes = kFormat == WeightFormat::kFp8Block ? 1024 : 512;
  static constexpr int kRowBlockBytes = kStageKBlocks / kBlockK64 * kBlockBytes;
  static constexpr int kToken64Bytes = kFp8Tokens ? kQuantizedBlockBytes / 2 : 128;
  static constexpr int kTokenBytes = kStageKBlocks * kToken64Bytes;
  // Zeros behind a row, for lanes past the last feature. bf16: 64 bytes past a multiple of 128, two
  // tokens' 64 bytes fill all banks once; fp8: 32, four tokens' 32 bytes do.
  static constexpr int kTokenStride =
      kFp8Tokens ? (kTokenBytes + 64 + 127) / 128 * 128 + 32 : kTokenBytes + 64;
  static constexpr int kWeightBytes = kItemRowBlocks * kRowBlockBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokens * kTokenStride;
  // Sums of the warps along k: [kWarpsK][kTokens][rows of an item].
  static constexpr int kSumStride = kItemRowBlocks * kRowBlock + 4;
  static constexpr int kReduceBytes = kWarpsK == 1 ? 0 : kWarpsK * kTokens * kSumStride * 4;
  static_assert(kKBlocks % kBlockK64 == 0);
  static_assert(!kFp8Tokens || kFormat == WeightFormat::kFp8Block);
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

}  // namespace grouped_gemm
}  // namespace lastflop
