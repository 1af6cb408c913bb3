#pragma once

#include "kernels/attention/attention_mma.cuh"
#include "kernels/attention/attention_split.cuh"

// Absorbed multi-head latent attention: keys of 512 + 64 elements whose first 512 are the values,
// one for all heads. A block has kRowTiles times 16 rows. Its eight warps share tiles of 64
// positions: for the scores they divide positions and halves of the key, which leaves each a part
// of the query that fits its registers; for the output they divide the features.
namespace lastflop::attention {

template <int kRowTiles, bool kFp8>
struct MlaBuild {
  static constexpr int kKey = 576;
  static constexpr int kValue = 512;
  static constexpr int kWarps = 8;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kRowTile = 16 * kRowTiles;
  static constexpr int kStages = kFp8 ? 4 : 2;
  static constexpr int kElementBytes = kFp8 ? 1 : 2;
  static constexpr int kRowBytes = kKey * kElementBytes;
  static constexpr int kRowStride = kRowBytes + 16;  // ldmatrix then meets no bank twice.
  static constexpr int kTilePositions = 64;
  static constexpr int kStageBytes = kTilePositions * kRowStride;
  static constexpr int kScoreStride = kTilePositions + 8;  // fp32; the same for its accesses.
  static constexpr int kScoreOffset = kStages * kStageBytes;
  static constexpr int kSharedBytes = kScoreOffset + 2 * kRowTile * kScoreStride * 4;
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
      (static_cast<int64_t>(unit.group) * split.positions + first) * Build::kRowBytes;
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
  const int first = warp / kRowTiles % (4 / kRowTiles) * Build::kWarpPositions;
  const int half = warp / 4;
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

// State of 16 rows (g and g + 8 of a lane); all warps have the same maxima and sums.
template <typename Build>
struct MlaState {
  float max[2];
  float sum[2];  // Of this lane's positions.
  float out[Build::kOutTiles][4];

  __device__ void Reset() {
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int n = 0; n < Build::kOutTiles; ++n) {
      out[n][0] = out[n][1] = out[n][2] = out[n][3] = 0;
    }
  }
};

// The weights of 16 rows for all positions of a tile, as A fragments; `state` moves on.
template <typename Build>
__device__ void MlaSoftmax(const Split& split, int first, const int (&visible)[2], int lane,
                           const float* scores, MlaState<Build>& state,
                           uint32_t (&weights)[Build::kTilePositions / 16][4]) {
  constexpr int kTiles = Build::kTilePositions / 8;
  const bool masks = first + Build::kTilePositions > min(visible[0], visible[1]);
  const int q = lane % 4;
  float p[kTiles][4];
  float max[2] = {state.max[0], state.max[1]};
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float* const at = scores + (lane / 4 + 8 * r) * Build::kScoreStride + 8 * n + 2 * q;
      const float2 one = *reinterpret_cast<const float2*>(at);
      const float2 other =
          *reinterpret_cast<const float2*>(at + Build::kRowTile * Build::kScoreStride);
      p[n][2 * r] = (one.x + other.x) * split.scale_log2;
      p[n][2 * r + 1] = (one.y + other.y) * split.scale_log2;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (masks && first + 8 * n + 2 * q + i % 2 >= visible[i / 2]) {
        p[n][i] = -INFINITY;
      }
      max[i / 2] = fmaxf(max[i / 2], p[n][i]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFu, max[r], 1));
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFu, max[r], 2));
  }
  const float base[2] = {max[0] == -INFINITY ? 0 : max[0], max[1] == -INFINITY ? 0 : max[1]};
  // Maxima settle soon: most tiles need no rescaling.
  if (__any_sync(0xFFFFFFFFu, max[0] > state.max[0] || max[1] > state.max[1])) {
    const float decay[2] = {Exp2(state.max[0] - base[0]), Exp2(state.max[1] - base[1])};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      state.sum[r] *= decay[r];
      state.max[r] = max[r];
    }
#pragma unroll
    for (int n = 0; n < Build::kOutTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        state.out[n][i] *= decay[i / 2];
      }
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      p[n][i] = Exp2(p[n][i] - base[i / 2]);
      state.sum[i / 2] += p[n][i];
    }
    weights[n / 2][n % 2 * 2] = PackBf16(p[n][0], p[n][1]);
    weights[n / 2][n % 2 * 2 + 1] = PackBf16(p[n][2], p[n][3]);
  }
}

// Adds weights times a warp's features of the tile.
template <int kRowTiles, bool kFp8, typename Build>
__device__ void AddMlaValues(const uint32_t (&weights)[kRowTiles][Build::kTilePositions / 16][4],
                             uint32_t stage, int warp, int lane,
                             MlaState<Build> (&states)[kRowTiles]) {
  constexpr int kMade = kTilesOf32Bytes<kFp8>;
  const uint32_t values = stage + ValueRow(lane) * Build::kRowStride + ValueColumn(lane) * 16 +
                          warp * Build::kWarpFeatures * Build::kElementBytes;
#pragma unroll
  for (int s = 0; s < Build::kTilePositions / 16; ++s) {
#pragma unroll
    for (int pair = 0; pair < Build::kOutTiles / kMade; ++pair) {
      uint32_t b[kMade][2];
      LoadValues<kFp8>(values + s * 16 * Build::kRowStride + 32 * pair, b);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
#pragma unroll
        for (int n = 0; n < kMade; ++n) {
          Multiply(states[m].out[pair * kMade + n], weights[m][s], b[n][0], b[n][1]);
        }
      }
    }
  }
}

// Writes a warp's features of 16 rows to `slot`, or to `out` where it is null.
template <bool kFp8, typename Build>
__device__ void FinishMlaSegment(const Split& split, const Arguments& arguments, int group,
                                 int first_row, int row_in_tile, int warp, int lane,
                                 MlaState<Build>& state, float* slot) {
  const int q = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.sum[r] += __shfl_xor_sync(0xFFFFFFFFu, state.sum[r], 1);
    state.sum[r] += __shfl_xor_sync(0xFFFFFFFFu, state.sum[r], 2);
    const int in_tile = row_in_tile + lane / 4 + 8 * r;
    const Row row(split, group, first_row + in_tile);
    if (!row.is_real) {
      continue;
    }
    const float inverse = 1.0f / state.sum[r];
#pragma unroll
    for (int n = 0; n < Build::kOutTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int feature = warp * Build::kWarpFeatures + FeatureOf<kFp8>(n, q, e);
        const float value = state.out[n][2 * r + e];
        if (slot == nullptr) {
          arguments.out[row.out_at + feature] = __float2bfloat16_rn(value * inverse);
        } else {
          slot[in_tile * Build::kValue + feature] = value;
        }
      }
    }
    if (slot != nullptr && warp == 0 && q == 0) {
      slot[Build::kRowTile * Build::kValue + 2 * in_tile] = state.max[r];
      slot[Build::kRowTile * Build::kValue + 2 * in_tile + 1] = state.sum[r];
    }
  }
}

template <int kRowTiles, bool kFp8>
__global__ void __launch_bounds__(MlaBuild<kRowTiles, kFp8>::kThreads, 1)
    MlaKernel(const Split split, const Arguments arguments) {
  using Build = MlaBuild<kRowTiles, kFp8>;
  extern __shared__ __align__(128) char shared[];
  auto* const scores = reinterpret_cast<float*>(shared + Build::kScoreOffset);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const Range range(split, static_cast<int>(blockIdx.x));
  const int first_row = range.row_tile_index * Build::kRowTile;
  const uint32_t ring = SharedOffset(shared);
  Unit loading(range);
  int64_t num_loaded = range.begin;
  const auto load_next = [&](int stage) {
    if (num_loaded < range.end) {
      LoadMlaStage<Build>(split, arguments, loading, warp, lane, ring + stage * Build::kStageBytes);
      loading.Next(range.tiles);
      ++num_loaded;
    }
    CommitCopies();  // Also of nothing, so that groups count stages.
  };
#pragma unroll
  for (int stage = 0; stage < Build::kStages - 1; ++stage) {
    load_next(stage);
  }
  uint32_t query[Build::kSteps][4];
  MlaState<Build> states[kRowTiles];
  int visible[kRowTiles][2];
  bool begins_range = true;
  bool begins_group = false;
  Unit unit(range);
  int stage = 0;
  for (int64_t i = range.begin; i < range.end; ++i) {
    if (i == range.begin || unit.tile == 0) {
      const int query_row = first_row + warp % kRowTiles * 16 + lane / 4;
      const Row low(split, unit.group, query_row);
      const Row high(split, unit.group, query_row + 8);
      const int half = warp / 4 * (Build::kKey / 2);
#pragma unroll
      for (int s = 0; s < Build::kSteps; ++s) {
        LoadQuery<kFp8>(low.is_real ? arguments.query + low.query_at + half : nullptr,
                        high.is_real ? arguments.query + high.query_at + half : nullptr, s,
                        lane % 4, Build::kKey / 2, query[s]);
      }
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        visible[m][0] = Row(split, unit.group, first_row + 16 * m + lane / 4).num_visible;
        visible[m][1] = Row(split, unit.group, first_row + 16 * m + lane / 4 + 8).num_visible;
        states[m].Reset();
      }
      begins_group = unit.tile == 0;
    }
    WaitForCopies<Build::kStages - 2>();
    __syncthreads();  // The tile is there; nobody reads the one before it, nor its scores.
    load_next((stage + Build::kStages - 1) % Build::kStages);
    const uint32_t tile = ring + stage * Build::kStageBytes;
    ScoreMlaStage<kFp8, Build>(query, tile, warp, lane, scores);
    __syncthreads();
    uint32_t weights[kRowTiles][Build::kTilePositions / 16][4];
#pragma unroll
    for (int m = 0; m < kRowTiles; ++m) {
      MlaSoftmax<Build>(split, unit.tile * Build::kTilePositions, visible[m], lane,
                        scores + 16 * m * Build::kScoreStride, states[m], weights[m]);
    }
    AddMlaValues<kRowTiles, kFp8, Build>(weights, tile, warp, lane, states);
    stage = (stage + 1) % Build::kStages;
    const bool ends_group = unit.tile == range.tiles - 1;
    if (ends_group || i == range.end - 1) {
      float* const slot = SlotOf(split, range, arguments, begins_range, begins_group && ends_group);
#pragma unroll
      for (int m = 0; m < kRowTiles; ++m) {
        FinishMlaSegment<kFp8, Build>(split, arguments, unit.group, first_row, 16 * m, warp, lane,
                                      states[m], slot);
      }
      begins_range = false;
    }
    unit.Next(range.tiles);
  }
}

}  // namespace lastflop::attention
