#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/plain_weights_cuda.h"
#include "kernels/cuda/stored_weight.cuh"
#include "kernels/cuda/weights_random_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 256;
constexpr int kFp8Block = 128;  // Rows and columns that share a scale.

// Weights that one thread stores: a group, where there are scales of groups.
constexpr int GroupOf(WeightFormat format) {
  return format == WeightFormat::kInt4G128                                    ? 128
         : format == WeightFormat::kInt4G32 || format == WeightFormat::kMxfp4 ? 32
                                                                              : 16;
}

unsigned int GridFor(int64_t num_threads) {
  return static_cast<unsigned int>(
      std::clamp<int64_t>((num_threads + kThreads - 1) / kThreads, 1, 8192));
}

// Stores the codes and the scale of the group of weights from `index` (in the full tensor) on.
template <WeightFormat kFormat>
__device__ inline void StoreGroup(const CudaWeightSlice& slice, uint64_t index, unsigned char* out,
                                  void* scales, int64_t scale_index) {
  constexpr int kGroup = GroupOf(kFormat);
  constexpr int kPart = 16;
  float values[kPart];
  float absmax = 0;
  for (int part = 0; part < kGroup; part += kPart) {
    TrueWeights(slice, index + static_cast<uint64_t>(part), values);
    for (const float value : values) {
      absmax = fmaxf(absmax, fabsf(value));
    }
  }
  float scale = 0;
  if constexpr (kFormat == WeightFormat::kNvfp4) {
    const float of_tensor = Nvfp4TensorScale(slice.amplitude);
    const uint32_t code = Nvfp4GroupScale(absmax, of_tensor);
    static_cast<unsigned char*>(scales)[scale_index] = static_cast<unsigned char>(code);
    scale = Nvfp4ScaleValue(code) * of_tensor;
  } else if constexpr (kFormat == WeightFormat::kMxfp4) {
    const uint32_t code = Mxfp4GroupScale(absmax);
    static_cast<unsigned char*>(scales)[scale_index] = static_cast<unsigned char>(code);
    scale = Mxfp4ScaleValue(code);
  } else {
    scale = Int4ScaleOf(absmax);
    static_cast<__nv_bfloat16*>(scales)[scale_index] = __float2bfloat16_rn(scale);
  }
  const auto code_of = [&](float value) {
    if constexpr (kFormat == WeightFormat::kNvfp4 || kFormat == WeightFormat::kMxfp4) {
      return Fp4CodeOf(value, scale);
    } else {
      return static_cast<uint32_t>(Int4QuantizeTo(value, scale) + 8);
    }
  };
  for (int part = 0; part < kGroup; part += kPart) {
    TrueWeights(slice, index + static_cast<uint64_t>(part), values);
    uint32_t words[2] = {0, 0};
    for (int i = 0; i < kPart; ++i) {
      words[i / 8] |= code_of(values[i]) << (4 * (i % 8));
    }
    *reinterpret_cast<uint2*>(out + part / 2) = make_uint2(words[0], words[1]);
  }
}

// A thread a group.
template <WeightFormat kFormat>
__global__ void FillGroupsKernel(const CudaWeightSlice slice, unsigned char* weights,
                                 void* scales) {
  constexpr int kGroup = GroupOf(kFormat);
  const int64_t groups = slice.cols / kGroup;
  const int64_t count = slice.num_matrices * slice.rows() * groups;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    const int64_t row = i / groups;
    const uint64_t index = slice.RowIndex(row / slice.rows(), row % slice.rows()) +
                           static_cast<uint64_t>(i % groups * kGroup);
    StoreGroup<kFormat>(slice, index, weights + i * (kGroup / 2), scales, i);
  }
}

// A thread a weight; then a thread a scale.
__global__ void FillFp8Kernel(const CudaWeightSlice slice, unsigned char* weights, float* scales) {
  const float scale = Fp8ScaleOf(slice);
  const int64_t count = slice.num_matrices * slice.rows() * slice.cols;
  const int64_t num_scales = slice.num_matrices * ((slice.rows() + kFp8Block - 1) / kFp8Block) *
                             ((slice.cols + kFp8Block - 1) / kFp8Block);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = first; i < count; i += stride) {
    const int64_t row = i / slice.cols;
    const uint64_t index = slice.RowIndex(row / slice.rows(), row % slice.rows()) +
                           static_cast<uint64_t>(i % slice.cols);
    weights[i] = static_cast<unsigned char>(
        Fp8QuantizeTo(TrueWeight(slice.seed, slice.stream, index, slice.amplitude), scale));
  }
  for (int64_t i = first; i < num_scales; i += stride) {
    scales[i] = scale;
  }
}

}  // namespace

absl::Status LaunchFillPlainWeights(const CudaWeightSlice& slice, void* weights, void* scales,
                                    cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckCudaSlice(slice));
  if (slice.format == WeightFormat::kBf16) {
    return LaunchFillRows(slice, static_cast<__nv_bfloat16*>(weights), stream);
  }
  auto* const out = static_cast<unsigned char*>(weights);
  const int64_t count = slice.num_matrices * slice.rows() * slice.cols;
  if (slice.format == WeightFormat::kFp8Block) {
    FillFp8Kernel<<<GridFor(count), kThreads, 0, stream>>>(slice, out, static_cast<float*>(scales));
    return LastLaunchStatus("fill_plain_weights");
  }
  const int group = GroupOf(slice.format);
  if (slice.cols % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat(slice.cols, " columns of ", ToWord(slice.format),
                                                   " weights in groups of ", group, ": ",
                                                   slice.cols % group, " are left over"));
  }
  const auto fill = [&](auto kernel) {
    kernel<<<GridFor(count / group), kThreads, 0, stream>>>(slice, out, scales);
    return LastLaunchStatus("fill_plain_weights");
  };
  switch (slice.format) {
    case WeightFormat::kInt4G32:
      return fill(FillGroupsKernel<WeightFormat::kInt4G32>);
    case WeightFormat::kInt4G128:
      return fill(FillGroupsKernel<WeightFormat::kInt4G128>);
    case WeightFormat::kNvfp4:
      return fill(FillGroupsKernel<WeightFormat::kNvfp4>);
    case WeightFormat::kMxfp4:
      return fill(FillGroupsKernel<WeightFormat::kMxfp4>);
    default:
      return absl::UnimplementedError(
          absl::StrCat(ToWord(slice.format), ": weights of this format have no plain form"));
  }
}

}  // namespace lastflop
