#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/attention/attention_gqa.cuh"
#include "kernels/attention/attention_mla.cuh"
#include "kernels/attention/attention_plain.cuh"
#include "kernels/attention/attention_split.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"

namespace lastflop {
namespace attention {
namespace {

constexpr int kMergeWarps = 8;
constexpr int kMaxRanges = 320;  // Two blocks an SM of the largest GPUs.
constexpr int kMergeThreads = 32 * kMergeWarps;
constexpr int kMergeFeatures = 128;  // Of a block: a warp's lanes by four.
constexpr int kAnySharedBytes = std::numeric_limits<int>::max();

// The sequence that block x of the merge has, -1 for none: each where they are fewer than the
// places where ranges meet, else the one at place x (where range x ends), if that is its first.
__device__ int MergedSequence(const Split& split, int x, int tiles, int per_range, int units) {
  if (split.num_sequences < split.ranges) {
    return x;
  }
  const int unit = (x + 1) * per_range;
  const int sequence = unit / tiles;
  const bool divides = unit < units && unit % tiles != 0;
  return divides && sequence * tiles / per_range == x ? sequence : -1;
}

// Block (sequence or place, some rows of a column, run of features). `warps_a_row` warps share a
// row's slots, a lane has four features.
__global__ void __launch_bounds__(kMergeThreads)
    MergeKernel(const Split split, int warps_a_row, const float* partials, __nv_bfloat16* out) {
  __shared__ float2 stats[kMergeWarps][kMaxRanges];  // Of a row; all rows of a block have few.
  __shared__ float4 sums_of[kMergeWarps][32];
  __shared__ float weight_sums[kMergeWarps];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rows = kMergeWarps / warps_a_row;
  const int row_in_block = warp / warps_a_row;
  const int part = warp % warps_a_row;
  const int column = static_cast<int>(blockIdx.y) / (split.row_tile / rows);
  const int in_tile = static_cast<int>(blockIdx.y) % (split.row_tile / rows) * rows + row_in_block;
  const int row_tile = column % split.row_tiles;
  const int tiles = split.Tiles(row_tile);
  const int per_range = split.UnitsOfRange(row_tile);
  const int sequence =
      MergedSequence(split, static_cast<int>(blockIdx.x), tiles, per_range, split.Units(row_tile));
  const int first_unit = sequence * tiles;
  const int first_range = first_unit / per_range;
  const int num_slots = (first_unit + tiles - 1) / per_range - first_range + 1;
  const Row row(split, max(sequence, 0), column / split.row_tiles,
                row_tile * split.row_tile + in_tile);
  WaitForEarlierKernels();
  LetNextKernelStart();
  if (sequence < 0 || num_slots == 1) {
    return;
  }
  const auto slot_of = [&](int i) {
    const int64_t block = static_cast<int64_t>(first_range + i) * split.Columns() + column;
    const bool begins_range = i > 0 || first_range * per_range == first_unit;
    return partials + (2 * block + (begins_range ? 0 : 1)) * split.SlotFloats();
  };
  for (int i = 32 * part + lane; i < num_slots && row.is_real; i += 32 * warps_a_row) {
    stats[row_in_block][i] =
        reinterpret_cast<const float2*>(slot_of(i) + split.row_tile * split.value_width)[in_tile];
  }
  __syncthreads();
  float max = -INFINITY;
  for (int i = lane; i < num_slots && row.is_real; i += 32) {
    max = fmaxf(max, stats[row_in_block][i].x);
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, offset));
  }
  const int feature = static_cast<int>(blockIdx.z) * kMergeFeatures + 4 * lane;
  const bool has_work = row.is_real && feature < split.value_width;
  float4 sums = {0, 0, 0, 0};
  float weight_sum = 0;
  // Loads first: a slot lies in L2, and its latency is most of this kernel.
  constexpr int kAhead = 8;
  for (int first = part; first < num_slots && has_work; first += kAhead * warps_a_row) {
    float4 values[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int i = min(first + k * warps_a_row, num_slots - 1);
      values[k] =
          *reinterpret_cast<const float4*>(slot_of(i) + in_tile * split.value_width + feature);
    }
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int i = first + k * warps_a_row;
      if (i < num_slots) {
        const float2 of_slot = stats[row_in_block][i];
        const float factor = Exp2(of_slot.x - max);
        weight_sum += factor * of_slot.y;
        sums.x += factor * values[k].x;
        sums.y += factor * values[k].y;
        sums.z += factor * values[k].z;
        sums.w += factor * values[k].w;
      }
    }
  }
  if (warps_a_row > 1) {
    sums_of[warp][lane] = sums;
    if (lane == 0) {
      weight_sums[warp] = weight_sum;  // Lane 0 has work where any lane has.
    }
    __syncthreads();
    for (int w = warp + 1; w < warp + warps_a_row && part == 0; ++w) {
      const float4 other = sums_of[w][lane];
      sums.x += other.x;
      sums.y += other.y;
      sums.z += other.z;
      sums.w += other.w;
      weight_sum += weight_sums[w];
    }
  }
  if (part == 0 && has_work) {
    const float inverse = 1.0f / weight_sum;
    *reinterpret_cast<uint2*>(out + row.out_at + feature) = make_uint2(
        PackBf16(sums.x * inverse, sums.y * inverse), PackBf16(sums.z * inverse, sums.w * inverse));
  }
}

// Sizes of the build that takes a shape; row_tile is 0 where none does.
struct BuildSizes {
  int row_tile = 0;
  int tile_positions = 0;
  int blocks_per_sm = 0;
  int shared_bytes = 0;
};

template <typename Build>
constexpr BuildSizes SizesOf() {
  return {.row_tile = Build::kRowTile,
          .tile_positions = Build::kTilePositions,
          .blocks_per_sm = Build::kBlocksPerSm,
          .shared_bytes = Build::kSharedBytes};
}

int64_t RowsOf(const AttentionShape& shape) {
  return shape.num_heads / shape.num_kv_heads * shape.query_tokens;
}

// `most_shared_bytes`: of a block on the device.
BuildSizes FindBuild(const AttentionShape& shape, int most_shared_bytes) {
  const bool is_fp8 = shape.cache == CacheFormat::kFp8;
  if (shape.kind == AttentionKind::kMla) {
    if (shape.kv_lora_rank != 512 || shape.qk_rope_head_dim != 64) {
      return {};
    }
    const BuildSizes large = is_fp8 ? SizesOf<MlaBuild<2, true>>() : SizesOf<MlaBuild<2, false>>();
    if (RowsOf(shape) <= 16 || large.shared_bytes > most_shared_bytes) {
      return is_fp8 ? SizesOf<MlaBuild<1, true>>() : SizesOf<MlaBuild<1, false>>();
    }
    return large;
  }
  // Rows of the cache in 16-byte pieces.
  if (shape.head_dim > 128 || shape.head_dim % (is_fp8 ? 16 : 8) != 0) {
    return {};
  }
  if (shape.head_dim <= 64) {
    return is_fp8 ? SizesOf<GqaBuild<64, true>>() : SizesOf<GqaBuild<64, false>>();
  }
  return is_fp8 ? SizesOf<GqaBuild<128, true>>() : SizesOf<GqaBuild<128, false>>();
}

Split SplitOf(const AttentionShape& shape, const BuildSizes& build, int num_sms) {
  const AttentionWidths widths = WidthsOf(shape);
  Split split = {};
  split.heads_per_group = static_cast<int>(shape.num_heads / shape.num_kv_heads);
  split.num_rows = static_cast<int>(RowsOf(shape));
  split.row_tile = build.row_tile;
  split.row_tiles = (split.num_rows + split.row_tile - 1) / split.row_tile;
  split.num_sequences = static_cast<int>(shape.num_sequences);
  split.num_kv_heads = static_cast<int>(shape.num_kv_heads);
  split.query_tokens = static_cast<int>(shape.query_tokens);
  split.context = static_cast<int>(shape.context);
  split.positions = static_cast<int>(shape.context + shape.query_tokens);
  split.tile_positions = build.tile_positions;
  split.key_width = static_cast<int>(widths.key);
  split.value_width = static_cast<int>(widths.value);
  split.query_stride = widths.query_stride;
  split.query_offset = widths.query_offset;
  split.out_stride = shape.num_heads * widths.value;
  split.scale_log2 = static_cast<float>(shape.softmax_scale * 1.4426950408889634);
  const int64_t wanted = std::max(1, num_sms * build.blocks_per_sm / split.Columns());
  split.ranges =
      static_cast<int>(std::min<int64_t>({wanted, split.Units(split.row_tiles - 1), kMaxRanges}));
  return split;
}

// A split with a row a tile: what the plain kernel reads of it.
Split PlainSplitOf(const AttentionShape& shape) {
  return SplitOf(shape, {.row_tile = 1, .tile_positions = kPlainThreads, .blocks_per_sm = 1}, 1);
}

template <typename Out>
absl::Status LaunchPlain(const AttentionShape& shape, const __nv_bfloat16* query,
                         const DeviceKvCache& cache, Out* out, cudaStream_t stream) {
  const Split split = PlainSplitOf(shape);
  const AttentionWidths widths = WidthsOf(shape);
  const void* const values = shape.kind == AttentionKind::kMla ? cache.keys : cache.values;
  const dim3 grid(static_cast<unsigned>(shape.num_sequences * shape.num_kv_heads),
                  static_cast<unsigned>(split.num_rows));
  const auto launch = [&](auto element) {
    using Cache = decltype(element);
    return LaunchOverlapping("attention, plain", PlainKernel<Cache, Out>, grid, kPlainThreads, 0,
                             stream, split, query, static_cast<const Cache*>(cache.keys),
                             static_cast<const Cache*>(values), widths.cache_stride,
                             widths.kv_head_offset, out);
  };
  return shape.cache == CacheFormat::kFp8 ? launch(__nv_fp8_storage_t{}) : launch(__nv_bfloat16{});
}

absl::Status LaunchSplit(void (*kernel)(Split, Arguments), int threads, const BuildSizes& build,
                         const Split& split, const Arguments& arguments, cudaStream_t stream) {
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, build.shared_bytes),
      "asking for attention's shared memory");
  return LaunchOverlapping("attention", kernel,
                           dim3(static_cast<unsigned>(split.ranges * split.Columns())), threads,
                           build.shared_bytes, stream, split, arguments);
}

template <int kDim>
absl::Status LaunchGqa(bool is_fp8, const BuildSizes& build, const Split& split,
                       const Arguments& arguments, cudaStream_t stream) {
  constexpr int kThreads = GqaBuild<kDim, false>::kThreads;
  return is_fp8 ? LaunchSplit(GqaKernel<kDim, true>, kThreads, build, split, arguments, stream)
                : LaunchSplit(GqaKernel<kDim, false>, kThreads, build, split, arguments, stream);
}
template <int kRowTiles>
absl::Status LaunchMla(bool is_fp8, const BuildSizes& build, const Split& split,
                       const Arguments& arguments, cudaStream_t stream) {
  constexpr int kThreads = MlaBuild<kRowTiles, false>::kThreads;
  return is_fp8
             ? LaunchSplit(MlaKernel<kRowTiles, true>, kThreads, build, split, arguments, stream)
             : LaunchSplit(MlaKernel<kRowTiles, false>, kThreads, build, split, arguments, stream);
}

absl::Status LaunchMerge(const Split& split, const Arguments& arguments, cudaStream_t stream) {
  // Two slots or more a warp.
  int warps_a_row = 1;
  while (warps_a_row < kMergeWarps && 4 * warps_a_row * split.num_sequences < split.ranges) {
    warps_a_row *= 2;
  }
  const dim3 grid(
      static_cast<unsigned>(std::min(split.num_sequences, split.ranges - 1)),
      static_cast<unsigned>(split.Columns() * split.row_tile * warps_a_row / kMergeWarps),
      static_cast<unsigned>((split.value_width + kMergeFeatures - 1) / kMergeFeatures));
  return LaunchOverlapping("attention merge", MergeKernel, grid, kMergeThreads, 0, stream, split,
                           warps_a_row, arguments.partials, arguments.out);
}

absl::StatusOr<int> MostSharedBytes() {
  int device = 0;
  int bytes = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), "asking for the device");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
      "asking for the shared memory of a block");
  return bytes;
}

}  // namespace
}  // namespace attention

absl::Status CheckAttentionCuda(const AttentionShape& shape) {
  LASTFLOP_RETURN_IF_ERROR(ValidateAttention(shape));
  constexpr int64_t kMaxGrid = int64_t{1} << 31;
  constexpr int64_t kMaxRows = 65535;  // Of the second dimension of a grid.
  const int64_t rows = attention::RowsOf(shape);
  const bool has_build = attention::FindBuild(shape, attention::kAnySharedBytes).row_tile > 0;
  if (shape.context + shape.query_tokens >= kMaxGrid ||
      shape.num_sequences * shape.num_kv_heads * rows >= kMaxGrid ||
      shape.num_sequences * (shape.context + shape.query_tokens) >= 16 * kMaxGrid ||
      (!has_build && rows > kMaxRows)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "attention: num_sequences=", shape.num_sequences, " query_tokens=", shape.query_tokens,
        " num_heads=", shape.num_heads, ": more rows than a grid has"));
  }
  return absl::OkStatus();
}

int64_t AttentionCudaWorkspaceBytes(const AttentionShape& shape, int num_sms) {
  if (shape.num_sequences == 0) {
    return 0;
  }
  int64_t floats = 0;
  for (const int most_shared_bytes : {attention::kAnySharedBytes, 0}) {
    const attention::BuildSizes build = attention::FindBuild(shape, most_shared_bytes);
    if (build.row_tile > 0) {
      const attention::Split split = attention::SplitOf(shape, build, num_sms);
      floats = std::max(floats, split.NumSlots() * split.SlotFloats());
    }
  }
  return floats * static_cast<int64_t>(sizeof(float));
}

absl::Status LaunchAttention(const AttentionShape& shape, int num_sms, const __nv_bfloat16* query,
                             const DeviceKvCache& cache, __nv_bfloat16* out, void* workspace,
                             cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckAttentionCuda(shape));
  if (shape.num_sequences == 0) {
    return absl::OkStatus();
  }
  LASTFLOP_ASSIGN_OR_RETURN(const int most_shared_bytes, attention::MostSharedBytes());
  const attention::BuildSizes build = attention::FindBuild(shape, most_shared_bytes);
  if (build.row_tile == 0 || build.shared_bytes > most_shared_bytes) {
    return attention::LaunchPlain(shape, query, cache, out, stream);
  }
  const attention::Split split = attention::SplitOf(shape, build, num_sms);
  const attention::Arguments arguments{.query = query,
                                       .keys = static_cast<const char*>(cache.keys),
                                       .values = static_cast<const char*>(cache.values),
                                       .out = out,
                                       .partials = static_cast<float*>(workspace)};
  const bool is_fp8 = shape.cache == CacheFormat::kFp8;
  if (shape.kind == AttentionKind::kMla) {
    LASTFLOP_RETURN_IF_ERROR(
        split.row_tile == 16 ? attention::LaunchMla<1>(is_fp8, build, split, arguments, stream)
                             : attention::LaunchMla<2>(is_fp8, build, split, arguments, stream));
  } else {
    LASTFLOP_RETURN_IF_ERROR(
        shape.head_dim <= 64 ? attention::LaunchGqa<64>(is_fp8, build, split, arguments, stream)
                             : attention::LaunchGqa<128>(is_fp8, build, split, arguments, stream));
  }
  return split.ranges > 1 ? attention::LaunchMerge(split, arguments, stream) : absl::OkStatus();
}

absl::Status LaunchAttentionReference(const AttentionShape& shape, const __nv_bfloat16* query,
                                      const DeviceKvCache& cache, float* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckAttentionCuda(shape));
  if (shape.num_sequences == 0) {
    return absl::OkStatus();
  }
  if (attention::RowsOf(shape) > 65535) {
    return absl::InvalidArgumentError("attention reference: more rows than a grid has");
  }
  return attention::LaunchPlain(shape, query, cache, out, stream);
}

}  // namespace lastflop
