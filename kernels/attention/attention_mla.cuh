#pragma once

#include "kernels/attention/attention_mma.cuh"
#include "kernels/attention/attention_split.cuh"
#include "kernels/cuda/ptx.cuh"

// Absorbed multi-head latent attention: keys of 512 + 64 elements whose first 512 are the values,
// one for all heads. A block has kRowTiles times 16 rows and goes over tiles of 32 positions in
// three parts, between barriers: for the scores its four warps divide halves of the key (which
// leaves each a part of the query that fits its registers) and positions or tiles of rows; for the
// softmax they divide rows; for the output, features. Two blocks share an SM and fill each other's
// gaps.
namespace lastflop::attention {

template <int kRowTiles, bool kFp8>
struct MlaBuild {
  static constexpr int kKey = 576;
  static constexpr int kValue = 512;
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kRowTile = 16 * kRowTiles;
  static constexpr int kStages = kFp8 ? 4 : 2;
  static constexpr int kElementBytes = kFp8 ? 1 : 2;
  static constexpr int kRowBytes = kKey * kElementBytes;
  static constexpr int kRowStride = kRowBytes + 16;  // ldmatrix then meets no bank twice.
  static constexpr int kTilePositions = 32;
  static constexpr int kStageBytes = kTilePositions * kRowStride;
  static constexpr int kScoreStride = kTilePositions + 8;        // fp32; no bank twice.
  static constexpr int kWeightStride = 2 * kTilePositions + 16;  // Bytes, for ldmatrix.
  static constexpr int kScoreOffset = kStages * kStageBytes;
  static constexpr int kWeightOffset = kScoreOffset + 2 * kRowTile * kScoreStride * 4;
  static constexpr int kDecayOffset = kWeightOffset + kRowTile * kWeightStride;
  static constexpr int kStatsOffset = kDecayOffset + kRowTile * 4;
  static constexpr int kSharedBytes = kStatsOffset + kRowTile * 8;
  static constexpr int kWarpPositions = 16 * kRowTiles;  // For the scores.
  static constexpr int kSteps = kKey / 16 / 2;           // Of half a key.
  static constexpr int kWarpFeatures = kValue / kWarps;
  static constexpr int kOutTiles = kWarpFeatures / 8;
};

template <typename Build>
__device__ void LoadMlaStage(const Split& split, const Arguments& arguments, const Unit& unit,
                             int warp, int lane, uint32_t stage) {
  constexpr int kChunks = Build::kRowBytes / 16;
  constexpr int kRows = Build::kTilePositions / Build::kWarps;
  const int first = unit.tile * Build::kTilePositions + warp * kRows;
  const char* const base =
      arguments.keys +
      (static_cast<int64_t>(unit.sequence) * split.positions + first) * Build::kRowBytes;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const bool is_valid = first + row < split.positions;
    const char* const from = is_valid ? base + row * Build::kRowBytes : arguments.keys;
#pragma unroll
    for (int i = 0; i < (kChunks + 31) / 32; ++i) {
      const int column = (32 * i + lane) * 16;
      if (column < Build::kRowBytes) {
        CopyOrZero16(stage + (warp * kRows + row) * Build::kRowStride + column, from + column,
                     is_valid);
      }
    }
  }
}

// A warp's part of the scores: 16 rows, kWarpPositions positions, half a key.
template <bool kFp8, typename Build>
__device__ void ScoreMlaStage(const uint32_t (&query)[Build::kSteps][4], uint32_t stage, int warp,
                              int lane, float* scores) {
  constexpr int kRowTiles = Build::kRowTile / 16;
  constexpr int kTiles = Build::kWarpPositions / 8;
  const int row_tile = warp % kRowTiles;
  const int first = warp / kRowTiles % (2 / kRowTiles) * Build::kWarpPositions;
  const int half = warp / 2;
  float sums[kTiles][4] = {};
  const uint32_t keys = stage + (first + KeyRow(lane)) * Build::kRowStride +
                        half * (Build::kRowBytes / 2) + KeyColumn(lane) * 16;
#pragma unroll
  for (int pair = 0; pair < Build::kRowBytes / 64; ++pair) {
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      MultiplyKeys<kFp8>(sums[n], sums[n + 1], query, pair,
                         keys + n * 8 * Build::kRowStride + 32 * pair);
    }
  }
  float* const to = scores +
                    (half * Build::kRowTile + row_tile * 16 + lane / 4) * Build::kScoreStride +
                    first + lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    *reinterpret_cast<float2*>(to + 8 * n) = make_float2(sums[n][0], sums[n][1]);
    *reinterpret_cast<float2*>(to + 8 * n + 8 * Build::kScoreStride) =
        make_float2(sums[n][2], sums[n][3]);
  }
}

// A warp's rows in the softmax: four at a time, eight lanes a row, four positions a lane.
template <typename Build>
struct MlaSoftmax {
  static constexpr int kPasses = Build::kRowTile / Build::kWarps / 4;
  float max[kPasses];
  float sum[kPasses];  // Of this lane's positions.
  int visible[kPasses];

  __device__ static int RowOf(int pass, int warp, int lane) {
    return (pass * Build::kWarps + warp) * 4 + lane / 8;
  }

  __device__ void Reset(const Split& split, int sequence, int first_row, int warp, int lane) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      max[pass] = -INFINITY;
      sum[pass] = 0;
      visible[pass] = Row(split, sequence, 0, first_row + RowOf(pass, warp, lane)).num_visible;
    }
  }

  // Scores of a tile to weights in bf16 (multiples of exp), and what earlier sums decay by.
  __device__ void Advance(const Split& split, int first, int warp, int lane, const float* scores,
                          char* weights, float* decays) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int row = RowOf(pass, warp, lane);
      const int column = lane % 8 * 4;
      const float* const at = scores + row * Build::kScoreStride + column;
      const float4 one = *reinterpret_cast<const float4*>(at);
      const float4 other =
          *reinterpret_cast<const float4*>(at + Build::kRowTile * Build::kScoreStride);
      float p[4] = {one.x + other.x, one.y + other.y, one.z + other.z, one.w + other.w};
      float new_max = max[pass];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[i] = first + column + i < visible[pass] ? p[i] * split.scale_log2 : -INFINITY;
        new_max = fmaxf(new_max, p[i]);
      }
#pragma unroll
      for (int offset = 1; offset < 8; offset *= 2) {
        new_max = fmaxf(new_max, __shfl_xor_sync(0xFFFFFFFFu, new_max, offset));
      }
      const float base = new_max == -INFINITY ? 0 : new_max;
      const float decay = Exp2(max[pass] - base);
      sum[pass] *= decay;
      max[pass] = new_max;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[i] = Exp2(p[i] - base);
        sum[pass] += p[i];
      }
      *reinterpret_cast<uint2*>(weights + row * Build::kWeightStride + 2 * column) =
          make_uint2(PackBf16(p[0], p[1]), PackBf16(p[2], p[3]));
      if (lane % 8 == 0) {
        decays[row] = decay;
      }
    }
  }

  // Maxima and sums of whole rows.
  __device__ void WriteStats(int warp, int lane, float2* stats) const {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      float total = sum[pass];
#pragma unroll
      for (int offset = 1; offset < 8; offset *= 2) {
        total += __shfl_xor_sync(0xFFFFFFFFu, total, offset);
      }
      if (lane % 8 == 0) {
        stats[RowOf(pass, warp, lane)] = make_float2(max[pass], total);
      }
    }
  }
};

template <typename Build>
using MlaSums = float[Build::kRowTile / 16][Build::kOutTiles][4];

// sums = sums * decay + weights times a warp's features of the tile.
template <bool kFp8, typename Build>
__device__ void AddMlaValues(uint32_t weights, const float* decays, uint32_t stage, int warp,
                             int lane, MlaSums<Build>& sums) {
  constexpr int kRowTiles = Build::kRowTile / 16;
  constexpr int kMade = kTilesOf32Bytes<kFp8>;
#pragma unroll
  for (int m = 0; m < kRowTiles; ++m) {
    const float decay[2] = {decays[16 * m + lane / 4], decays[16 * m + lane / 4 + 8]};
    // Maxima settle soon: most tiles need no rescaling.
    if (__any_sync(0xFFFFFFFFu, decay[0] != 1.0f || decay[1] != 1.0f)) {
#pragma unroll
      for (int n = 0; n < Build::kOutTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          sums[m][n][i] *= decay[i / 2];
        }
      }
    }
  }
  const uint32_t values = stage + ValueRow(lane) * Build::kRowStride + ValueColumn(lane) * 16 +
                          warp * Build::kWarpFeatures * Build::kElementBytes;
  const uint32_t row_weights = weights + lane % 16 * Build::kWeightStride + lane / 16 * 16;
#pragma unroll
  for (int s = 0; s < Build::kTilePositions / 16; ++s) {
    uint32_t a[kRowTiles][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      LoadMatrices(row_weights + 16 * m * Build::kWeightStride + 32 * s, a[m]);
    }
#pragma unroll
    for (int pair = 0; pair < Build::kOutTiles / kMade; ++pair) {
      uint32_t b[kMade][2];
      LoadValues<kFp8>(values + s * 16 * Build::kRowStride + 32 * pair, b);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kMade; ++n) {
          Multiply(sums[m][pair * kMade + n], a[m], b[n][0], b[n][1]);
        }
      }
    }
  }
}

// Writes a warp's features of all rows to `slot`, or to `out` where it is null.
template <bool kFp8, typename Build>
__device__ void FinishMlaSegment(const Split& split, const Arguments& arguments, int sequence,
                                 int first_row, int warp, int lane, const float2* stats,
                                 const MlaSums<Build>& sums, float* slot) {
#pragma unroll
  for (int r = 0; r < Build::kRowTile / 8; ++r) {
    const int in_tile = 8 * r + lane / 4;
    const Row row(split, sequence, 0, first_row + in_tile);
    if (!row.is_real) {
      continue;
    }
    const float2 of_row = stats[in_tile];
    const float inverse = 1.0f / of_row.y;
    const int first_feature = warp * Build::kWarpFeatures;
#pragma unroll
    for (int n = 0; n < Build::kOutTiles; n += 2) {
      const auto& tiles = sums[r / 2];
      const int e = r % 2 * 2;
      const FeaturePairs<kFp8> pairs(lane % 4, tiles[n][e], tiles[n][e + 1], tiles[n + 1][e],
                                     tiles[n + 1][e + 1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int feature = first_feature + 8 * n + pairs.offset[i];
        const float2 values = pairs.values[i];
        if (slot == nullptr) {
          *reinterpret_cast<uint32_t*>(arguments.out + row.out_at + feature) =
              PackBf16(values.x * inverse, values.y * inverse);
        } else {
          *reinterpret_cast<float2*>(slot + in_tile * Build::kValue + feature) = values;
        }
      }
    }
    if (slot != nullptr && warp == 0 && lane % 4 == 0) {
      reinterpret_cast<float2*>(slot + Build::kRowTile * Build::kValue)[in_tile] = of_row;
    }
  }
}

template <bool kFp8, typename Build>
__device__ void LoadMlaQuery(const Split& split, const Arguments& arguments, int sequence,
                             int first_row, int warp, int lane,
                             uint32_t (&query)[Build::kSteps][4]) {
  const int index = first_row + warp % (Build::kRowTile / 16) * 16 + lane / 4;
  const Row low(split, sequence, 0, index);
  const Row high(split, sequence, 0, index + 8);
  const int half = warp / 2 * (Build::kKey / 2);
#pragma unroll
  for (int s = 0; s < Build::kSteps; ++s) {
    LoadQuery<kFp8>(low.is_real ? arguments.query + low.query_at + half : nullptr,
                    high.is_real ? arguments.query + high.query_at + half : nullptr, s, lane % 4,
                    Build::kKey / 2, query[s]);
  }
}

template <int kRowTiles, bool kFp8>
__global__ void __launch_bounds__(MlaBuild<kRowTiles, kFp8>::kThreads,
                                  MlaBuild<kRowTiles, kFp8>::kBlocksPerSm)
    MlaKernel(const Split split, const Arguments arguments) {
  using Build = MlaBuild<kRowTiles, kFp8>;
  extern __shared__ __align__(128) char shared[];
  auto* const scores = reinterpret_cast<float*>(shared + Build::kScoreOffset);
  auto* const decays = reinterpret_cast<float*>(shared + Build::kDecayOffset);
  auto* const stats = reinterpret_cast<float2*>(shared + Build::kStatsOffset);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const Range range(split, static_cast<int>(blockIdx.x));
  const int first_row = range.row_tile_index * Build::kRowTile;
  const uint32_t ring = SharedOffset(shared);
  Unit loading(range);
  int num_loaded = range.begin;
  const auto load_next = [&](int stage) {
    if (num_loaded < range.end) {
      LoadMlaStage<Build>(split, arguments, loading, warp, lane, ring + stage * Build::kStageBytes);
      loading.Next(range.tiles);
      ++num_loaded;
    }
    CommitCopies();  // Also of nothing, so that groups count stages.
  };
  WaitForEarlierKernels();
  LetNextKernelStart();
#pragma unroll
  for (int stage = 0; stage < Build::kStages - 1; ++stage) {
    load_next(stage);
  }
  uint32_t query[Build::kSteps][4];
  MlaSums<Build> sums;
  MlaSoftmax<Build> softmax;
  bool begins_range = true;
  bool begins_sequence = false;
  Unit unit(range);
  int stage = 0;
  for (int i = range.begin; i < range.end; ++i) {
    if (i == range.begin || unit.tile == 0) {
      LoadMlaQuery<kFp8, Build>(split, arguments, unit.sequence, first_row, warp, lane, query);
      softmax.Reset(split, unit.sequence, first_row, warp, lane);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < Build::kOutTiles; ++n) {
          sums[m][n][0] = sums[m][n][1] = sums[m][n][2] = sums[m][n][3] = 0;
        }
      }
      begins_sequence = unit.tile == 0;
    }
    WaitForCopies<Build::kStages - 2>();
    __syncthreads();  // The tile is there; nobody reads the one before it, nor its weights.
    load_next((stage + Build::kStages - 1) % Build::kStages);
    const uint32_t tile = ring + stage * Build::kStageBytes;
    ScoreMlaStage<kFp8, Build>(query, tile, warp, lane, scores);
    __syncthreads();
    softmax.Advance(split, unit.tile * Build::kTilePositions, warp, lane, scores,
                    shared + Build::kWeightOffset, decays);
    __syncthreads();
    AddMlaValues<kFp8, Build>(ring + Build::kWeightOffset, decays, tile, warp, lane, sums);
    stage = (stage + 1) % Build::kStages;
    const bool ends_sequence = unit.tile == range.tiles - 1;
    if (ends_sequence || i == range.end - 1) {
      softmax.WriteStats(warp, lane, stats);
      __syncthreads();
      FinishMlaSegment<kFp8, Build>(
          split, arguments, unit.sequence, first_row, warp, lane, stats, sums,
          SlotOf(split, arguments, begins_range, begins_sequence && ends_sequence));
      begins_range = false;
    }
    unit.Next(range.tiles);
  }
}

}  // namespace lastflop::attention
