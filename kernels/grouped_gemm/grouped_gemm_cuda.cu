#include <algorithm>

#include "kernels/cuda/stored_weight.cuh"
#include "kernels/grouped_gemm/grouped_gemm_cuda.h"
#include "kernels/grouped_gemm/grouped_gemm_launch.cuh"

namespace lastflop {
namespace {

// Weights a scale; 0 for bf16, -1 for a format without a build.
int GroupOf(const WeightStorage& storage) {
  switch (storage.format) {
    case WeightFormat::kBf16:
      return 0;
    case WeightFormat::kInt4G32:
      return 32;
    case WeightFormat::kInt4G128:
      return 128;
    default:
      return -1;
  }
}

absl::Status CheckSizes(const ExpertGemmShape& shape, int group) {
  const int64_t unit = group == 0 ? 8 : group;
  if (shape.num_tokens < 0 || shape.top_k < 1 || shape.num_local_experts < 1 ||
      shape.out_features < 1 || shape.out_features % kRowBlock != 0 || shape.in_features < 1 ||
      shape.in_features % unit != 0 || shape.out_features > INT32_MAX / 2 ||
      shape.in_features > INT32_MAX / 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("grouped_gemm: ", shape.num_local_experts, " experts of [", shape.out_features,
                     ", ", shape.in_features, "]: out_features must be a multiple of ", kRowBlock,
                     ", in_features of ", unit));
  }
  return absl::OkStatus();
}

// A block of threads per (output feature, expert).
__global__ void ReferenceKernel(const CudaWeightSlice weights, const CudaPairs pairs, bool gather,
                                const __nv_bfloat16* in, const int64_t* out_features,
                                int64_t num_features, float* out) {
  const int64_t expert = blockIdx.y;
  for (int64_t i = blockIdx.x; i < num_features; i += gridDim.x) {
    ReferenceRows(
        weights, expert, out_features != nullptr ? out_features[i] : i, pairs.offsets[expert],
        pairs.offsets[expert + 1],
        [&](int64_t pair) {
          return in + static_cast<int64_t>(gather ? pairs.token[pair] : pair) * weights.cols;
        },
        out + i, num_features);
  }
}

}  // namespace

absl::Status CheckGroupedGemmCuda(const ExpertGemmShape& shape,
                                  const GroupedGemmCudaConfig& config) {
  const int group = GroupOf(shape.storage);
  if (group < 0) {
    return absl::UnimplementedError(
        absl::StrCat("moe.weights: ", ToWord(shape.storage.format),
                     " on CUDA; bf16, int4_g32 and int4_g128 are built"));
  }
  if (shape.activations != ActivationFormat::kBf16) {
    return absl::UnimplementedError(
        absl::StrCat("moe.activations: ", ToWord(shape.activations), " on CUDA; bf16 is built"));
  }
  LASTFLOP_RETURN_IF_ERROR(CheckSizes(shape, group));
  if (config.row_order == CudaRowOrder::kGateAndUp && shape.out_features % 16 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("grouped_gemm: gate and up of ", shape.out_features, " rows"));
  }
  if (shape.swiglu && config.row_order != CudaRowOrder::kGateAndUp) {
    return absl::InvalidArgumentError("grouped_gemm: swiglu needs gate and up rows side by side");
  }
  if (shape.group_m < 0 || (shape.group_m > 0 && shape.tile_order == TileOrder::kColumnMajor)) {
    return absl::InvalidArgumentError(absl::StrCat("moe.group_m: ", shape.group_m,
                                                   " with tile_order ", ToWord(shape.tile_order),
                                                   "; 0 or more, beside row_major"));
  }
  int device = 0;
  int major = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), "asking for the device");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "asking for the device");
  if (major < 8) {
    return absl::UnimplementedError(
        absl::StrCat("grouped_gemm needs compute capability 8.0, the device has ", major, ".x"));
  }
  return absl::OkStatus();
}

absl::Status LaunchGroupedGemm(const ExpertGemmShape& shape, const CudaPairs& pairs,
                               const void* panels, const __nv_bfloat16* in, __nv_bfloat16* out,
                               const GroupedGemmCudaConfig& config, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckGroupedGemmCuda(shape, config));
  if (pairs.num_slots != shape.num_tokens * shape.top_k ||
      pairs.num_local_experts != shape.num_local_experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("grouped_gemm: pairs placed for ", pairs.num_slots, " slots and ",
                     pairs.num_local_experts, " experts, the shape has ",
                     shape.num_tokens * shape.top_k, " and ", shape.num_local_experts));
  }
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  const int group = GroupOf(shape.storage);
  GroupedGemmArguments p{};
  p.tiles = pairs.tiles;
  p.num_tiles = pairs.num_tiles;
  p.tile_prefix = pairs.tile_prefix;
  p.token = shape.gather_tokens ? pairs.token : nullptr;
  p.panels = static_cast<const unsigned char*>(panels);
  p.in = in;
  p.out = out;
  p.matrix_bytes = PanelBytesOfMatrix(group, shape.out_features, shape.in_features);
  p.max_tiles = static_cast<int>(std::min<int64_t>(pairs.max_tiles, INT32_MAX));
  p.mean_tiles = static_cast<int>(std::min<int64_t>(
      pairs.mean_pairs, pairs.mean_pairs / pairs.tile_tokens +
                            std::min<int64_t>(shape.num_local_experts, INT32_MAX)));
  p.rows = static_cast<int>(shape.out_features);
  p.k = static_cast<int>(shape.in_features);
  p.k_blocks = static_cast<int>((shape.in_features + 63) / 64);
  p.row_blocks = static_cast<int>(shape.out_features / kRowBlock);
  p.group_m = shape.tile_order == TileOrder::kColumnMajor
                  ? 0
                  : static_cast<int>(std::clamp<int64_t>(shape.group_m, 1, INT32_MAX / 2));
  p.row_order = static_cast<int>(config.row_order);
  p.swiglu = shape.swiglu ? 1 : 0;
  p.early_weights = config.early_weights ? 1 : 0;
  p.cache_hint = config.cache_hint == CacheHint::kEvictFirst  ? 1
                 : config.cache_hint == CacheHint::kEvictLast ? 2
                                                              : 0;
  switch (group) {
    case 0:
      return LaunchGroupedGemmBf16(p, pairs.tile_tokens, config.stages, stream);
    case 32:
      return LaunchGroupedGemmInt4G32(p, pairs.tile_tokens, config.stages, stream);
    default:
      return LaunchGroupedGemmInt4G128(p, pairs.tile_tokens, config.stages, stream);
  }
}

absl::Status LaunchGroupedGemmReference(const ExpertGemmShape& shape, const CudaPairs& pairs,
                                        const CudaWeightSlice& weights, const __nv_bfloat16* in,
                                        const int64_t* out_features, int64_t num_features,
                                        float* out, cudaStream_t stream) {
  if (shape.swiglu) {
    return absl::InvalidArgumentError("grouped_gemm_reference gives sums: swiglu must be off");
  }
  if (weights.rows() != shape.out_features || weights.cols != shape.in_features ||
      weights.num_matrices != shape.num_local_experts || shape.num_local_experts > 65535 ||
      num_features < 1 || (out_features == nullptr && num_features != shape.out_features)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reference of ", num_features, " features of ", shape.num_local_experts, " experts of [",
        shape.out_features, ", ", shape.in_features, "] with weights [", weights.num_matrices, ", ",
        weights.rows(), ", ", weights.cols, "]"));
  }
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  const dim3 grid(static_cast<unsigned int>(std::min<int64_t>(num_features, 65535)),
                  static_cast<unsigned int>(shape.num_local_experts));
  ReferenceKernel<<<grid, 256, 0, stream>>>(weights, pairs, shape.gather_tokens, in, out_features,
                                            num_features, out);
  return LastLaunchStatus("grouped_gemm_reference");
}

}  // namespace lastflop
