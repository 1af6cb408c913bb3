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

namespace lastflop {
namespace attention {
namespace {

constexpr int kMergeThreads = 512;
constexpr int kAnySharedBytes = std::numeric_limits<int>::max();

// A block a row of a group that is divided: block x stands for the place where range x meets range
// x + 1, and works if that is the group's first such place. Threads divide the slots and, in runs
// of four, the features.
__global__ void __launch_bounds__(kMergeThreads)
    MergeKernel(const Split split, const float* partials, __nv_bfloat16* out) {
  extern __shared__ float4 shared[];
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  const int row_tile = static_cast<int>(blockIdx.x) % split.row_tiles;
  const int64_t meets = static_cast<int64_t>(blockIdx.x) / split.row_tiles + 1;
  const int tiles = split.Tiles(row_tile);
  const int64_t per_range = split.UnitsOfRange(row_tile);
  const int64_t unit = meets * per_range;
  const int in_tile = static_cast<int>(blockIdx.y);
  if (unit >= split.Units(row_tile) || unit % tiles == 0) {
    return;
  }
  const int64_t group = unit / tiles;
  const int64_t first_unit = group * tiles;
  const int64_t first_range = first_unit / per_range;
  const int64_t last_range = (first_unit + tiles - 1) / per_range;
  const Row row(split, static_cast<int>(group), row_tile * split.row_tile + in_tile);
  if (meets != first_range + 1 || !row.is_real) {
    return;
  }
  const auto slot_of = [&](int64_t range) {
    const bool begins_range = range * per_range >= first_unit;
    const int64_t block = range * split.row_tiles + row_tile;
    return partials + (2 * block + (begins_range ? 0 : 1)) * split.SlotFloats();
  };
  const int runs = (split.value_width + 3) / 4;
  const int parts = kMergeThreads / runs;
  const int part = static_cast<int>(threadIdx.x) / runs;
  const int run = static_cast<int>(threadIdx.x) % runs;
  const int stats_at = split.row_tile * split.value_width + 2 * in_tile;
  float max = -INFINITY;
  for (int64_t range = first_range; range <= last_range; ++range) {
    max = fmaxf(max, slot_of(range)[stats_at]);
  }
  float4 sums = {0, 0, 0, 0};
  float weight_sum = 0;
  if (part < parts) {
#pragma unroll 4
    for (int64_t range = first_range + part; range <= last_range; range += parts) {
      const float* const slot = slot_of(range);
      const float factor = Exp2(slot[stats_at] - max);
      const float4 values =
          reinterpret_cast<const float4*>(slot + in_tile * split.value_width)[run];
      weight_sum += factor * slot[stats_at + 1];
      sums.x += factor * values.x;
      sums.y += factor * values.y;
      sums.z += factor * values.z;
      sums.w += factor * values.w;
    }
  }
  auto* const weight_sums = reinterpret_cast<float*>(shared + kMergeThreads);
  shared[threadIdx.x] = sums;
  weight_sums[threadIdx.x] = weight_sum;
  __syncthreads();
  if (part != 0) {
    return;
  }
  for (int p = 1; p < parts; ++p) {
    const float4 other = shared[p * runs + run];
    sums.x += other.x;
    sums.y += other.y;
    sums.z += other.z;
    sums.w += other.w;
    weight_sum += weight_sums[p * runs + run];
  }
  auto* const to = reinterpret_cast<__nv_bfloat162*>(out + row.out_at + 4 * run);
  to[0] = __floats2bfloat162_rn(sums.x / weight_sum, sums.y / weight_sum);
  to[1] = __floats2bfloat162_rn(sums.z / weight_sum, sums.w / weight_sum);
}

// Sizes of the build that takes a shape; row_tile is 0 where none does.
struct BuildSizes {
  int row_tile = 0;
  int tile_positions = 0;
  int blocks_per_sm = 0;
  int shared_bytes = 0;
};

template <typename Build>
constexpr BuildSizes SizesOf(int blocks_per_sm) {
  return {.row_tile = Build::kRowTile,
          .tile_positions = Build::kTilePositions,
          .blocks_per_sm = blocks_per_sm,
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
    const BuildSizes large =
        is_fp8 ? SizesOf<MlaBuild<2, true>>(1) : SizesOf<MlaBuild<2, false>>(1);
    if (RowsOf(shape) <= 16 || large.shared_bytes > most_shared_bytes) {
      return is_fp8 ? SizesOf<MlaBuild<1, true>>(1) : SizesOf<MlaBuild<1, false>>(1);
    }
    return large;
  }
  // Rows of the cache in 16-byte pieces.
  if (shape.head_dim > 128 || shape.head_dim % (is_fp8 ? 16 : 8) != 0) {
    return {};
  }
  if (shape.head_dim <= 64) {
    return is_fp8 ? SizesOf<GqaBuild<64, true>>(2) : SizesOf<GqaBuild<64, false>>(2);
  }
  return is_fp8 ? SizesOf<GqaBuild<128, true>>(2) : SizesOf<GqaBuild<128, false>>(2);
}

Split SplitOf(const AttentionShape& shape, const BuildSizes& build, int num_sms) {
  const AttentionWidths widths = WidthsOf(shape);
  Split split = {};
  split.heads_per_group = static_cast<int>(shape.num_heads / shape.num_kv_heads);
  split.num_rows = static_cast<int>(RowsOf(shape));
  split.row_tile = build.row_tile;
  split.row_tiles = (split.num_rows + split.row_tile - 1) / split.row_tile;
  split.num_groups = static_cast<int>(shape.num_sequences * shape.num_kv_heads);
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
  const int64_t wanted = std::max(1, num_sms * build.blocks_per_sm / split.row_tiles);
  split.ranges = static_cast<int>(std::min(wanted, split.Units(split.row_tiles - 1)));
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
  const dim3 grid(static_cast<unsigned>(split.num_groups), static_cast<unsigned>(split.num_rows));
  if (shape.cache == CacheFormat::kFp8) {
    PlainKernel<<<grid, kPlainThreads, 0, stream>>>(
        split, query, static_cast<const __nv_fp8_storage_t*>(cache.keys),
        static_cast<const __nv_fp8_storage_t*>(values), widths.cache_stride, widths.kv_head_offset,
        out);
  } else {
    PlainKernel<<<grid, kPlainThreads, 0, stream>>>(
        split, query, static_cast<const __nv_bfloat16*>(cache.keys),
        static_cast<const __nv_bfloat16*>(values), widths.cache_stride, widths.kv_head_offset, out);
  }
  return LastLaunchStatus("attention, plain");
}

template <typename Kernel>
absl::Status LaunchSplit(Kernel kernel, int threads, const BuildSizes& build, const Split& split,
                         const Arguments& arguments, cudaStream_t stream) {
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, build.shared_bytes),
      "asking for attention's shared memory");
  kernel<<<static_cast<unsigned>(split.ranges * split.row_tiles), threads,
           static_cast<size_t>(build.shared_bytes), stream>>>(split, arguments);
  return LastLaunchStatus("attention");
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

// Hopper and later start the merge's blocks while the last ranges run; they wait within.
absl::Status LaunchMerge(const Split& split, const Arguments& arguments, bool has_early_launch,
                         cudaStream_t stream) {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((split.ranges - 1) * split.row_tiles),
                        static_cast<unsigned>(std::min(split.row_tile, split.num_rows)));
  config.blockDim = dim3(kMergeThreads);
  config.dynamicSmemBytes = kMergeThreads * (sizeof(float4) + sizeof(float));
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = has_early_launch ? 1 : 0;
  const cudaError_t error = cudaLaunchKernelEx(
      &config, MergeKernel, split, static_cast<const float*>(arguments.partials), arguments.out);
  LASTFLOP_RETURN_IF_ERROR(CudaStatus(error, "launching the merge of attention"));
  return LastLaunchStatus("attention merge");
}

absl::StatusOr<int> DeviceAttribute(cudaDeviceAttr attribute) {
  int device = 0;
  int value = 0;
  LASTFLOP_RETURN_IF_ERROR(CudaStatus(cudaGetDevice(&device), "asking for the device"));
  LASTFLOP_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetAttribute(&value, attribute, device), "asking what the device has"));
  return value;
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
  LASTFLOP_ASSIGN_OR_RETURN(const int most_shared_bytes,
                            attention::DeviceAttribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  const attention::BuildSizes build = attention::FindBuild(shape, most_shared_bytes);
  if (build.row_tile == 0 || build.shared_bytes > most_shared_bytes) {
    return attention::LaunchPlain(shape, query, cache, out, stream);
  }
  LASTFLOP_ASSIGN_OR_RETURN(const int major,
                            attention::DeviceAttribute(cudaDevAttrComputeCapabilityMajor));
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
  return split.ranges > 1 ? attention::LaunchMerge(split, arguments, major >= 9, stream)
                          : absl::OkStatus();
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
