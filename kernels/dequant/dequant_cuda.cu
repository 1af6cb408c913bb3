#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/panel.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/dequant/dequant_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 256;

// Which int4 panels the weights are in; Unimplemented for all else.
absl::StatusOr<WeightFormat> Int4FormatOf(const WeightStorage& storage) {
  LASTFLOP_ASSIGN_OR_RETURN(const WeightFormat format, PanelFormatOf(storage));
  if (format != WeightFormat::kInt4G32 && format != WeightFormat::kInt4G128) {
    return absl::UnimplementedError(
        absl::StrCat("moe.dequant=separate with moe.weights=", ToWord(storage.format),
                     ": the CUDA backend dequantizes int4_g32 and int4_g128 apart; other formats "
                     "are decoded in registers"));
  }
  return format;
}

// Four nibbles of both halves, scaled and rounded: one lane's 16 bytes of a bf16 panel. Registers
// 0 and 2 are row g, 1 and 3 row g + 8.
__device__ inline uint4 DequantizeWord(uint32_t word, float scale, float scale_8) {
  uint32_t a[4];
  NibblesToValues(word, a);
  uint32_t out[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float s = i % 2 == 0 ? scale : scale_8;
    out[i] = PackBf16(LowBf16(a[i]) * s, HighBf16(a[i]) * s);
  }
  return make_uint4(out[0], out[1], out[2], out[3]);
}

// Block y is an expert; warps stride over its blocks of 64 features.
template <WeightFormat kFormat>
__global__ void DequantKernel(const int32_t* offsets, int64_t row_blocks, int64_t k_blocks_64,
                              const unsigned char* in, unsigned char* out) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int expert = static_cast<int>(blockIdx.y);
  if (offsets[expert] == offsets[expert + 1]) {
    return;
  }
  constexpr int kHalves = PanelBlockK(kFormat) / 64;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int64_t k_blocks_in = (k_blocks_64 + kHalves - 1) / kHalves;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  for (int64_t block = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
       block < row_blocks * k_blocks_64; block += num_warps) {
    const int64_t row_block = block / k_blocks_64;
    const int64_t k_block = block % k_blocks_64;
    const int64_t block_in = (expert * row_blocks + row_block) * k_blocks_in + k_block / kHalves;
    const unsigned char* from = in + block_in * PanelBlockBytes(kFormat);
    const int half = static_cast<int>(k_block % kHalves);
    const uint4 words = *reinterpret_cast<const uint4*>(from + 512 * half + 16 * lane);
    uint2 scales;
    if constexpr (kFormat == WeightFormat::kInt4G32) {
      scales = *reinterpret_cast<const uint2*>(from + 512 + 8 * g);
    } else {
      scales.x = scales.y = *reinterpret_cast<const uint32_t*>(from + 1024 + 4 * g);
    }
    const uint32_t word_of[4] = {words.x, words.y, words.z, words.w};
    unsigned char* to =
        out + (expert * row_blocks * k_blocks_64 + block) * PanelBlockBytes(WeightFormat::kBf16) +
        16 * lane;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const uint32_t scale = j < 2 ? scales.x : scales.y;
      *reinterpret_cast<uint4*>(to + 512 * j) =
          DequantizeWord(word_of[j], LowBf16(scale), HighBf16(scale));
    }
  }
}

}  // namespace

absl::Status CheckDequantCuda(const DequantShape& shape) {
  LASTFLOP_ASSIGN_OR_RETURN(const WeightFormat format, Int4FormatOf(shape.storage));
  const int64_t group = PanelColumnUnit(format);
  if (shape.num_local_experts < 1 || shape.num_local_experts > 65535 || shape.out_features < 1 ||
      shape.out_features % kRowBlock != 0 || shape.in_features < 1 ||
      shape.in_features % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dequant: [", shape.num_local_experts, ", ", shape.out_features, ", ", shape.in_features,
        "]: rows must be a multiple of ", kRowBlock, ", columns of ", group));
  }
  return absl::OkStatus();
}

absl::Status LaunchDequant(const DequantShape& shape, const CudaPairs& pairs, const void* panels,
                           void* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckDequantCuda(shape));
  const int64_t row_blocks = shape.out_features / kRowBlock;
  const int64_t k_blocks = PanelKBlocks(WeightFormat::kBf16, shape.in_features);
  const dim3 grid(static_cast<unsigned int>(
                      std::clamp<int64_t>(row_blocks * k_blocks / (kThreads / 32), 1, 64)),
                  static_cast<unsigned int>(shape.num_local_experts));
  const auto* from = static_cast<const unsigned char*>(panels);
  auto* to = static_cast<unsigned char*>(out);
  LASTFLOP_ASSIGN_OR_RETURN(const WeightFormat format, Int4FormatOf(shape.storage));
  auto* kernel = format == WeightFormat::kInt4G32 ? DequantKernel<WeightFormat::kInt4G32>
                                                  : DequantKernel<WeightFormat::kInt4G128>;
  return LaunchOverlapping("dequant", kernel, grid, kThreads, 0, stream, pairs.offsets, row_blocks,
                           k_blocks, from, to);
}

}  // namespace lastflop
