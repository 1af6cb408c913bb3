#pragma once

#include "kernels/attention/attention_mma.cuh"
#include "kernels/attention/attention_split.cuh"
#include "kernels/cuda/ptx.cuh"

// Grouped-query attention. A block has 16 rows of a KV head; each of its warps takes some positions
// of a tile for itself, from a ring of its own in shared memory, and keeps all of the output's sums
// in registers: no barrier within a segment. At its end the warps' results are merged.
namespace lastflop::attention {

template <int kDim, bool kFp8>
struct GqaBuild {
  static constexpr int kWarps = 4;
  static constexpr int kThreads = 32 * kWarps;
  static constexpr int kBlocksPerSm = 2;
  static constexpr int kRowTile = 16;
  static constexpr int kStages = 3;
  static constexpr int kElementBytes = kFp8 ? 1 : 2;
  static constexpr int kRowBytes = kDim * kElementBytes;
  static constexpr int kRowStride = kRowBytes + 16;  // ldmatrix then meets no bank twice.
  static constexpr int kWarpPositions = kRowBytes >= 256 ? 16 : 32;
  static constexpr int kTilePositions = kWarps * kWarpPositions;
  static constexpr int kValueOffset = kWarpPositions * kRowStride;
  static constexpr int kStageBytes = 2 * kValueOffset;
  static constexpr int kMergeStride = kDim + 8;
  static constexpr int kMergeOffset = kWarps * kStages * kStageBytes;
  static constexpr int kStatsOffset = kMergeOffset + kRowTile * kMergeStride * 4;
  static constexpr int kSharedBytes = kStatsOffset + kWarps * kRowTile * 2 * 4;
  static constexpr int kSteps = kDim / 16;
  static constexpr int kOutTiles = kDim / 8;
};

// State of a warp's rows g and g + 8.
template <typename Build>
struct GqaState {
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

template <typename Build>
__device__ void LoadGqaStage(const Split& split, const Arguments& arguments, const Unit& unit,
                             int kv_head, int warp, int lane, uint32_t stage) {
  constexpr int kChunks = Build::kRowBytes / 16;
  const int width_bytes = split.key_width * Build::kElementBytes;
  const int first = unit.tile * Build::kTilePositions + warp * Build::kWarpPositions;
  const int64_t position_bytes = static_cast<int64_t>(split.num_kv_heads) * width_bytes;
  const int64_t base =
      (static_cast<int64_t>(unit.sequence) * split.positions + first) * position_bytes +
      static_cast<int64_t>(kv_head) * width_bytes;
#pragma unroll
  for (int i = 0; i < Build::kWarpPositions * kChunks / 32; ++i) {
    const int row = (32 * i + lane) / kChunks;
    const int column = (32 * i + lane) % kChunks * 16;
    const bool is_valid = first + row < split.positions && column < width_bytes;
    const int64_t at = is_valid ? base + row * position_bytes + column : 0;
    const uint32_t to = stage + row * Build::kRowStride + column;
    CopyOrZero16(to, arguments.keys + at, is_valid);
    CopyOrZero16(to + Build::kValueOffset, arguments.values + at, is_valid);
  }
}

// Scores of a warp's positions become weights in place (a multiple of exp), `state` moves on.
template <typename Build>
__device__ void GqaSoftmax(const Split& split, int first, const int (&visible)[2], int q,
                           float (&scores)[Build::kWarpPositions / 8][4], GqaState<Build>& state) {
  constexpr int kTiles = Build::kWarpPositions / 8;
  const bool masks = first + Build::kWarpPositions > min(visible[0], visible[1]);
  float max[2] = {state.max[0], state.max[1]};
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int position = first + 8 * n + 2 * q + i % 2;
      scores[n][i] *= split.scale_log2;
      if (masks && position >= visible[i / 2]) {
        scores[n][i] = -INFINITY;
      }
      max[i / 2] = fmaxf(max[i / 2], scores[n][i]);
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFu, max[r], 1));
    max[r] = fmaxf(max[r], __shfl_xor_sync(0xFFFFFFFFu, max[r], 2));
  }
  const float base[2] = {max[0] == -INFINITY ? 0 : max[0], max[1] == -INFINITY ? 0 : max[1]};
  // Maxima settle soon: most blocks need no rescaling.
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
      scores[n][i] = Exp2(scores[n][i] - base[i / 2]);
      state.sum[i / 2] += scores[n][i];
    }
  }
}

template <int kDim, bool kFp8, typename Build>
__device__ void AttendGqaStage(const Split& split, int first, const int (&visible)[2], int lane,
                               const uint32_t (&query)[Build::kSteps][4], uint32_t stage,
                               GqaState<Build>& state) {
  constexpr int kTiles = Build::kWarpPositions / 8;
  float scores[kTiles][4] = {};
  const uint32_t keys = stage + KeyRow(lane) * Build::kRowStride + KeyColumn(lane) * 16;
#pragma unroll
  for (int pair = 0; pair < Build::kRowBytes / 32; ++pair) {
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      MultiplyKeys<kFp8>(scores[n], scores[n + 1], query, pair,
                         keys + n * 8 * Build::kRowStride + 32 * pair);
    }
  }
  GqaSoftmax<Build>(split, first, visible, lane % 4, scores, state);
  const uint32_t values =
      stage + Build::kValueOffset + ValueRow(lane) * Build::kRowStride + ValueColumn(lane) * 16;
#pragma unroll
  for (int s = 0; s < kTiles / 2; ++s) {
    const uint32_t weights[4] = {PackBf16(scores[2 * s][0], scores[2 * s][1]),
                                 PackBf16(scores[2 * s][2], scores[2 * s][3]),
                                 PackBf16(scores[2 * s + 1][0], scores[2 * s + 1][1]),
                                 PackBf16(scores[2 * s + 1][2], scores[2 * s + 1][3])};
#pragma unroll
    for (int pair = 0; pair < Build::kRowBytes / 32; ++pair) {
      constexpr int kMade = kTilesOf32Bytes<kFp8>;
      uint32_t b[kMade][2];
      LoadValues<kFp8>(values + s * 16 * Build::kRowStride + 32 * pair, b);
#pragma unroll
      for (int n = 0; n < kMade; ++n) {
        Multiply(state.out[pair * kMade + n], weights, b[n][0], b[n][1]);
      }
    }
  }
}

// Merges the warps' states and writes them to `slot`, or to `out` where it is null.
template <bool kFp8, typename Build>
__device__ void FinishGqaSegment(const Split& split, const Arguments& arguments, int sequence,
                                 int kv_head, int first_row, int warp, int lane,
                                 GqaState<Build>& state, char* shared, float* slot) {
  auto* const merged = reinterpret_cast<float*>(shared + Build::kMergeOffset);
  auto* const stats = reinterpret_cast<float(*)[Build::kRowTile][2]>(shared + Build::kStatsOffset);
  const int g = lane / 4;
  const int q = lane % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state.sum[r] += __shfl_xor_sync(0xFFFFFFFFu, state.sum[r], 1);
    state.sum[r] += __shfl_xor_sync(0xFFFFFFFFu, state.sum[r], 2);
    if (q == 0) {
      stats[warp][g + 8 * r][0] = state.max[r];
      stats[warp][g + 8 * r][1] = state.sum[r];
    }
  }
  __syncthreads();
  float factor[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float max = -INFINITY;
    for (int w = 0; w < Build::kWarps; ++w) {
      max = fmaxf(max, stats[w][g + 8 * r][0]);
    }
    factor[r] = max == -INFINITY ? 0 : Exp2(state.max[r] - max);
  }
  for (int w = 0; w < Build::kWarps; ++w) {
    if (warp == w) {
#pragma unroll
      for (int n = 0; n < Build::kOutTiles; n += 2) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const FeaturePairs<kFp8> pairs(q, state.out[n][2 * r], state.out[n][2 * r + 1],
                                         state.out[n + 1][2 * r], state.out[n + 1][2 * r + 1]);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            auto* const to = reinterpret_cast<float2*>(merged + (g + 8 * r) * Build::kMergeStride +
                                                       8 * n + pairs.offset[i]);
            const float2 before = w == 0 ? make_float2(0, 0) : *to;
            *to = make_float2(before.x + pairs.values[i].x * factor[r],
                              before.y + pairs.values[i].y * factor[r]);
          }
        }
      }
    }
    __syncthreads();
  }
  // A warp a row; lanes its features.
  for (int r = warp; r < Build::kRowTile; r += Build::kWarps) {
    const Row row(split, sequence, kv_head, first_row + r);
    float max = -INFINITY;
    for (int w = 0; w < Build::kWarps; ++w) {
      max = fmaxf(max, stats[w][r][0]);
    }
    float sum = 0;
    for (int w = 0; w < Build::kWarps; ++w) {
      sum += max == -INFINITY ? 0 : stats[w][r][1] * Exp2(stats[w][r][0] - max);
    }
    if (!row.is_real) {
      continue;
    }
    const float inverse = 1.0f / sum;
    for (int d = 2 * lane; d < split.value_width; d += 64) {
      const float2 values = *reinterpret_cast<const float2*>(merged + r * Build::kMergeStride + d);
      if (slot == nullptr) {
        *reinterpret_cast<uint32_t*>(arguments.out + row.out_at + d) =
            PackBf16(values.x * inverse, values.y * inverse);
      } else {
        *reinterpret_cast<float2*>(slot + r * split.value_width + d) = values;
      }
    }
    if (slot != nullptr && lane == 0) {
      reinterpret_cast<float2*>(slot + split.row_tile * split.value_width)[r] =
          make_float2(max, sum);
    }
  }
  __syncthreads();  // The next segment writes the statistics.
}

template <int kDim, bool kFp8>
__global__ void __launch_bounds__(GqaBuild<kDim, kFp8>::kThreads,
                                  GqaBuild<kDim, kFp8>::kBlocksPerSm)
    GqaKernel(const Split split, const Arguments arguments) {
  using Build = GqaBuild<kDim, kFp8>;
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const Range range(split, static_cast<int>(blockIdx.x));
  const int first_row = range.row_tile_index * Build::kRowTile;
  const uint32_t ring = SharedOffset(shared) + warp * Build::kStages * Build::kStageBytes;
  Unit loading(range);
  int num_loaded = range.begin;
  const auto load_next = [&](int stage) {
    if (num_loaded < range.end) {
      LoadGqaStage<Build>(split, arguments, loading, range.kv_head, warp, lane,
                          ring + stage * Build::kStageBytes);
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
  GqaState<Build> state;
  int visible[2] = {0, 0};
  bool begins_range = true;
  bool begins_sequence = false;
  Unit unit(range);
  int stage = 0;
  for (int i = range.begin; i < range.end; ++i) {
    if (i == range.begin || unit.tile == 0) {
      const Row low(split, unit.sequence, range.kv_head, first_row + lane / 4);
      const Row high(split, unit.sequence, range.kv_head, first_row + lane / 4 + 8);
#pragma unroll
      for (int s = 0; s < Build::kSteps; ++s) {
        LoadQuery<kFp8>(low.is_real ? arguments.query + low.query_at : nullptr,
                        high.is_real ? arguments.query + high.query_at : nullptr, s, lane % 4,
                        split.key_width, query[s]);
      }
      visible[0] = low.num_visible;
      visible[1] = high.num_visible;
      begins_sequence = unit.tile == 0;
      state.Reset();
    }
    WaitForCopies<Build::kStages - 2>();
    __syncwarp();
    load_next((stage + Build::kStages - 1) % Build::kStages);
    AttendGqaStage<kDim, kFp8, Build>(
        split, unit.tile * Build::kTilePositions + warp * Build::kWarpPositions, visible, lane,
        query, ring + stage * Build::kStageBytes, state);
    stage = (stage + 1) % Build::kStages;
    const bool ends_sequence = unit.tile == range.tiles - 1;
    if (ends_sequence || i == range.end - 1) {
      float* const slot = SlotOf(split, arguments, begins_range, begins_sequence && ends_sequence);
      FinishGqaSegment<kFp8, Build>(split, arguments, unit.sequence, range.kv_head, first_row, warp,
                                    lane, state, shared, slot);
      begins_range = false;
    }
    unit.Next(range.tiles);
  }
}

}  // namespace lastflop::attention
