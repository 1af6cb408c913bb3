#include <algorithm>

#include "kernels/cuda/stored_weight.cuh"
#include "kernels/grouped_gemm/grouped_gemm_cuda.h"
#include "kernels/grouped_gemm/grouped_gemm_launch.cuh"

namespace lastflop {
namespace {

absl::Status CheckSizes(const ExpertGemmShape& shape, WeightFormat format) {
  const int64_t unit = PanelColumnUnit(format);
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

bool IsQuantized(const ExpertGemmShape& shape) {
  return shape.activations == ActivationFormat::kFp8;
}

absl::Status CheckActivations(const ExpertGemmShape& shape, WeightFormat weights) {
  if (shape.activations == ActivationFormat::kBf16) {
    return absl::OkStatus();
  }
  if (!IsQuantized(shape) || weights != WeightFormat::kFp8Block) {
    return absl::UnimplementedError(absl::StrCat(
        "moe.activations=", ToWord(shape.activations), " with moe.weights=", ToWord(weights),
        ": the CUDA backend has bf16 activations, and fp8 ones for fp8_block weights"));
  }
  if (shape.in_features % kQuantizedBlockFeatures != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("moe.activations=fp8: ", shape.in_features, " features in blocks of ",
                     kQuantizedBlockFeatures, ": ", shape.in_features, " mod ",
                     kQuantizedBlockFeatures, " = ", shape.in_features % kQuantizedBlockFeatures));
  }
  return absl::OkStatus();
}

// `capability` is ten times the least compute capability.
absl::Status CheckDevice(int capability) {
  int device = 0;
  int major = 0;
  int minor = 0;
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), "asking for the device");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "asking for the device");
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
      "asking for the device");
  if (10 * major + minor < capability) {
    return absl::UnimplementedError(absl::StrCat("grouped_gemm needs compute capability ",
                                                 capability / 10, ".", capability % 10,
                                                 " for this, the device has ", major, ".", minor));
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
  LASTFLOP_ASSIGN_OR_RETURN(const WeightFormat format, PanelFormatOf(shape.storage));
  LASTFLOP_RETURN_IF_ERROR(CheckActivations(shape, format));
  LASTFLOP_RETURN_IF_ERROR(CheckSizes(shape, format));
  if (config.in_stride != 0 &&
      (config.in_stride < shape.in_features || config.in_stride % 8 != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("grouped_gemm: rows of ", shape.in_features, " features ", config.in_stride,
                     " apart: at least as many, and a multiple of 8"));
  }
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
  // e4m3 products came with 8.9.
  return CheckDevice(IsQuantized(shape) ? 89 : 80);
}

absl::Status LaunchGroupedGemm(const ExpertGemmShape& shape, const CudaPairs& pairs,
                               const void* panels, const void* in, __nv_bfloat16* out,
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
  LASTFLOP_ASSIGN_OR_RETURN(const WeightFormat format, PanelFormatOf(shape.storage));
  GroupedGemmArguments p{};
  p.tiles = pairs.tiles;
  p.num_tiles = pairs.num_tiles;
  p.tile_prefix = pairs.tile_prefix;
  p.token = shape.gather_tokens ? pairs.token : nullptr;
  p.panels = static_cast<const unsigned char*>(panels);
  p.in = static_cast<const unsigned char*>(in);
  p.out = out;
  p.matrix_bytes = PanelBytesOfMatrix(format, shape.out_features, shape.in_features);
  p.in_row_bytes = IsQuantized(shape)
                       ? QuantizedRowBytes(shape.in_features)
                       : 2 * (config.in_stride != 0 ? config.in_stride : shape.in_features);
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
  switch (format) {
    case WeightFormat::kFp8Block:
      return IsQuantized(shape)
                 ? LaunchGroupedGemmFp8Tokens(p, pairs.tile_tokens, config.stages, stream)
                 : LaunchGroupedGemmFp8(p, pairs.tile_tokens, config.stages, stream);
    case WeightFormat::kInt4G32:
      return LaunchGroupedGemmInt4G32(p, pairs.tile_tokens, config.stages, stream);
    case WeightFormat::kInt4G128:
      return LaunchGroupedGemmInt4G128(p, pairs.tile_tokens, config.stages, stream);
    case WeightFormat::kNvfp4:
      p.sum_scale = config.tensor_scale * 0x1p8f;  // Fp4ScalePair
      return LaunchGroupedGemmNvfp4(p, pairs.tile_tokens, config.stages, stream);
    case WeightFormat::kMxfp4:
      p.sum_scale = 0x1p16f;
      return LaunchGroupedGemmMxfp4(p, pairs.tile_tokens, config.stages, stream);
    default:
      return LaunchGroupedGemmBf16(p, pairs.tile_tokens, config.stages, stream);
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
