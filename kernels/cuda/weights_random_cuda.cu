#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/stored_weight.cuh"
#include "kernels/cuda/weights_random_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 256;

// Enough blocks for every multiprocessor; the kernels stride over the rest.
unsigned int GridFor(int64_t num_threads) {
  return static_cast<unsigned int>(
      std::clamp<int64_t>((num_threads + kThreads - 1) / kThreads, 1, 8192));
}

// One thread four neighbours of the output.
__global__ void FillRowsKernel(const CudaWeightSlice slice, __nv_bfloat16* out) {
  const int64_t count = slice.num_matrices * slice.rows() * slice.cols;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * 4;
  for (int64_t i = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * 4; i < count;
       i += stride) {
    const int64_t col = i % slice.cols;
    const int64_t row = i / slice.cols % slice.rows();
    const int64_t matrix = i / slice.cols / slice.rows();
    if (col + 4 <= slice.cols && slice.cols % 4 == 0) {
      float values[4];
      TrueWeights(slice, slice.RowIndex(matrix, row) + static_cast<uint64_t>(col), values);
      *reinterpret_cast<uint2*>(out + i) =
          make_uint2(PackBf16(values[0], values[1]), PackBf16(values[2], values[3]));
      continue;
    }
    for (int64_t j = i; j < i + 4 && j < count; ++j) {
      const uint64_t index =
          slice.RowIndex(j / slice.cols / slice.rows(), j / slice.cols % slice.rows()) +
          static_cast<uint64_t>(j % slice.cols);
      out[j] = __float2bfloat16_rn(TrueWeight(slice.seed, slice.stream, index, slice.amplitude));
    }
  }
}

// A code where a half of a word keeps that of register `i` (panel.h).
__device__ inline uint32_t Fp4InHalf(int i, uint32_t code) {
  const uint32_t sign = code >> 3;
  const uint32_t magnitude = code & 7u;
  return i == 0   ? sign << 15 | magnitude << 6
         : i == 1 ? sign << 12 | magnitude << 3
         : i == 2 ? sign << 9 | magnitude
                  : sign << 14 | (magnitude & 4u) << 11 | (magnitude & 3u) << 10;
}

// The largest of four neighbouring lanes.
__device__ inline float MaxOfFour(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, 2));
}

// A lane's weights of 64 features of a panel: values[half][group of 32][8].
struct LaneWeights {
  float values[2][2][8];

  __device__ void Load(const CudaWeightSlice& slice, CudaRowOrder order, int64_t matrix,
                       int64_t row_block, int64_t k_begin, int g, int q) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = PanelRowOf(order, slice.rows(), row_block, g + 8 * half);
      const uint64_t first = slice.RowIndex(matrix, row);
#pragma unroll
      for (int group = 0; group < 2; ++group) {
        const int64_t k = k_begin + 32 * group + 8 * q;
        if (k + 8 <= slice.cols) {
          TrueWeights(slice, first + static_cast<uint64_t>(k), values[half][group]);
        } else {
          for (float& value : values[half][group]) {
            value = 0;
          }
        }
      }
    }
  }
  __device__ float AbsMax(int half, int group) const {
    float absmax = 0;
#pragma unroll
    for (const float value : values[half][group]) {
      absmax = fmaxf(absmax, fabsf(value));
    }
    return absmax;
  }
  // Largest of the lane's two neighbours, its own among them, that share 16 features of nvfp4.
  __device__ float AbsMaxOfPair(int half, int group) const {
    const float own = AbsMax(half, group);
    return fmaxf(own, __shfl_xor_sync(0xFFFFFFFFu, own, 1));
  }
  // The four words of fp4 panels.
  __device__ uint4 Fp4Codes(const float (&scales)[2][2]) const {
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int group = 0; group < 2; ++group) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const uint32_t code = Fp4CodeOf(values[half][group][i], scales[half][group]);
          words[2 * group + i / 4] |= Fp4InHalf(2 * (i % 4 / 2) + half, code) << (16 * (i % 2));
        }
      }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
  // The words of 32 features of fp8 panels.
  __device__ uint4 Fp8Words(int group, float scale) const {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* v = &values[i % 2][group][4 * (i / 2)];
      words[i] = Fp8QuantizeTo(v[2], scale) | Fp8QuantizeTo(v[0], scale) << 8 |
                 Fp8QuantizeTo(v[3], scale) << 16 | Fp8QuantizeTo(v[1], scale) << 24;
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
  // The four words of int4 panels.
  __device__ uint4 Quantized(const float (&scales)[2][2]) const {
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int group = 0; group < 2; ++group) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const auto nibble = static_cast<uint32_t>(
              Int4QuantizeTo(values[half][group][i], scales[half][group]) + 8);
          words[2 * group + i / 4] |= nibble << (4 * (2 * (i % 4 / 2) + half) + 16 * (i % 2));
        }
      }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
  }
};

__device__ inline void StoreBf16Block(const LaneWeights& w, int lane, unsigned char* panel) {
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float(&low)[8] = w.values[0][j / 2];
    const float(&high)[8] = w.values[1][j / 2];
    const int i = 4 * (j % 2);
    *reinterpret_cast<uint4*>(panel + 512 * j + 16 * lane) =
        make_uint4(PackBf16(low[i], low[i + 1]), PackBf16(high[i], high[i + 1]),
                   PackBf16(low[i + 2], low[i + 3]), PackBf16(high[i + 2], high[i + 3]));
  }
}

// A block of 128 features of fp8 panels.
__device__ inline void StoreFp8Block(const LaneWeights& first, const LaneWeights& second,
                                     float scale, int lane, unsigned char* panel) {
  auto* words = reinterpret_cast<uint4*>(panel) + lane;
  words[0] = first.Fp8Words(0, scale);
  words[32] = first.Fp8Words(1, scale);
  words[64] = second.Fp8Words(0, scale);
  words[96] = second.Fp8Words(1, scale);
  if (lane == 0) {
    const uint32_t bits = __float_as_uint(scale);
    words[128] = make_uint4(bits, bits, 0, 0);
  }
}

// Scales of a lane's weights of 64 features, and their bytes as panels of fp4 keep them.
template <WeightFormat kFormat>
__device__ inline void StoreFp4Block(const CudaWeightSlice& slice, const LaneWeights& w, int lane,
                                     unsigned char* panel) {
  const int g = lane / 4;
  const int q = lane % 4;
  const float of_tensor = Nvfp4TensorScale(slice.amplitude);
  float scales[2][2];
  uint32_t bytes = 0;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int group = 0; group < 2; ++group) {
      uint32_t byte = 0;
      if constexpr (kFormat == WeightFormat::kNvfp4) {
        byte = Nvfp4GroupScale(w.AbsMaxOfPair(half, group), of_tensor);
        scales[half][group] = Nvfp4ScaleValue(byte) * of_tensor;
      } else {
        byte = Mxfp4GroupScale(MaxOfFour(w.AbsMax(half, group)));
        scales[half][group] = Mxfp4ScaleValue(byte);
      }
      bytes |= byte << (8 * (2 * group + half));
    }
  }
  *reinterpret_cast<uint4*>(panel + 16 * lane) = w.Fp4Codes(scales);
  if (kFormat == WeightFormat::kNvfp4 && q % 2 == 0) {
    *reinterpret_cast<uint32_t*>(panel + 512 + 8 * g + 4 * (q / 2)) = bytes;
  } else if (kFormat == WeightFormat::kMxfp4 && q == 0) {
    *reinterpret_cast<uint32_t*>(panel + 512 + 4 * g) = bytes;
  }
}

// One warp a block of a panel.
template <WeightFormat kFormat>
__global__ void FillPanelsKernel(const CudaWeightSlice slice, CudaRowOrder order,
                                 unsigned char* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4;
  const int q = lane % 4;
  const int64_t row_blocks = slice.rows() / kRowBlock;
  const int64_t k_blocks = PanelKBlocks(kFormat, slice.cols);
  const int64_t num_blocks = slice.num_matrices * row_blocks * k_blocks;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  for (int64_t block = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
       block < num_blocks; block += num_warps) {
    const int64_t k_begin = block % k_blocks * PanelBlockK(kFormat);
    const int64_t row_block = block / k_blocks % row_blocks;
    const int64_t matrix = block / k_blocks / row_blocks;
    unsigned char* panel = out + block * PanelBlockBytes(kFormat);
    LaneWeights w;
    w.Load(slice, order, matrix, row_block, k_begin, g, q);
    if constexpr (kFormat == WeightFormat::kBf16) {
      StoreBf16Block(w, lane, panel);
    } else if constexpr (kFormat == WeightFormat::kFp8Block) {
      LaneWeights second;
      second.Load(slice, order, matrix, row_block, k_begin + 64, g, q);
      StoreFp8Block(w, second, Fp8ScaleOf(slice), lane, panel);
    } else if constexpr (kFormat == WeightFormat::kNvfp4 || kFormat == WeightFormat::kMxfp4) {
      StoreFp4Block<kFormat>(slice, w, lane, panel);
    } else if constexpr (kFormat == WeightFormat::kInt4G32) {
      float scales[2][2];
      for (int half = 0; half < 2; ++half) {
        for (int group = 0; group < 2; ++group) {
          scales[half][group] = Int4ScaleOf(MaxOfFour(w.AbsMax(half, group)));
        }
      }
      *reinterpret_cast<uint4*>(panel + 16 * lane) = w.Quantized(scales);
      if (q == 0) {
        *reinterpret_cast<uint2*>(panel + 512 + 8 * g) =
            make_uint2(PackBf16(scales[0][0], scales[1][0]), PackBf16(scales[0][1], scales[1][1]));
      }
    } else {
      LaneWeights second;
      second.Load(slice, order, matrix, row_block, k_begin + 64, g, q);
      float scales[2][2];
      for (int half = 0; half < 2; ++half) {
        const float absmax = fmaxf(fmaxf(w.AbsMax(half, 0), w.AbsMax(half, 1)),
                                   fmaxf(second.AbsMax(half, 0), second.AbsMax(half, 1)));
        scales[half][0] = scales[half][1] = Int4ScaleOf(MaxOfFour(absmax));
      }
      *reinterpret_cast<uint4*>(panel + 16 * lane) = w.Quantized(scales);
      *reinterpret_cast<uint4*>(panel + 512 + 16 * lane) = second.Quantized(scales);
      if (q == 0) {
        *reinterpret_cast<uint32_t*>(panel + 1024 + 4 * g) = PackBf16(scales[0][0], scales[1][0]);
      }
    }
  }
}

// A block of threads per output feature.
__global__ void ReferenceGemmKernel(const CudaWeightSlice slice, int64_t matrix,
                                    const __nv_bfloat16* in, int64_t in_stride, int64_t num_tokens,
                                    const int64_t* out_features, int64_t num_features, float* out) {
  for (int64_t i = blockIdx.x; i < num_features; i += gridDim.x) {
    ReferenceRows(
        slice, matrix, out_features != nullptr ? out_features[i] : i, 0, num_tokens,
        [&](int64_t t) { return in + t * in_stride; }, out + i, num_features);
  }
}

}  // namespace

absl::Status CheckCudaSlice(const CudaWeightSlice& slice) {
  if (slice.num_parts < 1 || slice.num_parts > 3 || slice.num_matrices < 1 ||
      slice.first_matrix < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a weight slice of ", slice.num_parts, " parts and matrices [",
                     slice.first_matrix, ", ", slice.first_matrix + slice.num_matrices, ")"));
  }
  for (int part = 0; part < slice.num_parts; ++part) {
    const int64_t begin = slice.part_row_begin[part];
    const int64_t end = begin + slice.part_rows[part];
    if (begin < 0 || end <= begin || end > slice.rows_full) {
      return absl::InvalidArgumentError(
          absl::StrCat("weight rows [", begin, ", ", end, ") of ", slice.rows_full));
    }
  }
  if (slice.col_begin < 0 || slice.cols < 1 || slice.col_begin + slice.cols > slice.cols_full) {
    return absl::InvalidArgumentError(absl::StrCat("weight columns [", slice.col_begin, ", ",
                                                   slice.col_begin + slice.cols, ") of ",
                                                   slice.cols_full));
  }
  return PanelFormatOf(StorageOf(slice.format)).status();
}

absl::Status LaunchFillRows(const CudaWeightSlice& slice, __nv_bfloat16* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckCudaSlice(slice));
  if (slice.format != WeightFormat::kBf16) {
    return absl::InvalidArgumentError(
        absl::StrCat("plain rows are bf16, not ", ToWord(slice.format)));
  }
  const int64_t count = slice.num_matrices * slice.rows() * slice.cols;
  FillRowsKernel<<<GridFor(count / 4), kThreads, 0, stream>>>(slice, out);
  return LastLaunchStatus("fill_rows");
}

absl::Status CheckPanels(const CudaWeightSlice& slice, CudaRowOrder order) {
  LASTFLOP_RETURN_IF_ERROR(CheckCudaSlice(slice));
  const int64_t unit = PanelColumnUnit(slice.format);
  if (slice.rows() % kRowBlock != 0 || slice.cols % unit != 0) {
    return absl::InvalidArgumentError(absl::StrCat("weights [", slice.rows(), ", ", slice.cols,
                                                   "] of a rank: rows must be a ", "multiple of ",
                                                   kRowBlock, ", columns of ", unit));
  }
  if (order == CudaRowOrder::kGateAndUp &&
      (slice.num_parts != 2 || slice.part_rows[0] != slice.part_rows[1] ||
       slice.part_rows[0] % 8 != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gate and up rows: ", slice.num_parts, " parts of ", slice.part_rows[0],
                     " and ", slice.part_rows[1], " rows, not two of the same multiple of 8"));
  }
  return absl::OkStatus();
}

absl::Status LaunchFillPanels(const CudaWeightSlice& slice, CudaRowOrder order, void* out,
                              cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckPanels(slice, order));
  const int64_t blocks =
      slice.num_matrices * slice.rows() / kRowBlock * PanelKBlocks(slice.format, slice.cols);
  const unsigned int grid = GridFor(blocks * 32);
  auto* bytes = static_cast<unsigned char*>(out);
  switch (slice.format) {
    case WeightFormat::kFp8Block:
      FillPanelsKernel<WeightFormat::kFp8Block><<<grid, kThreads, 0, stream>>>(slice, order, bytes);
      break;
    case WeightFormat::kInt4G32:
      FillPanelsKernel<WeightFormat::kInt4G32><<<grid, kThreads, 0, stream>>>(slice, order, bytes);
      break;
    case WeightFormat::kInt4G128:
      FillPanelsKernel<WeightFormat::kInt4G128><<<grid, kThreads, 0, stream>>>(slice, order, bytes);
      break;
    case WeightFormat::kNvfp4:
      FillPanelsKernel<WeightFormat::kNvfp4><<<grid, kThreads, 0, stream>>>(slice, order, bytes);
      break;
    case WeightFormat::kMxfp4:
      FillPanelsKernel<WeightFormat::kMxfp4><<<grid, kThreads, 0, stream>>>(slice, order, bytes);
      break;
    default:
      FillPanelsKernel<WeightFormat::kBf16><<<grid, kThreads, 0, stream>>>(slice, order, bytes);
  }
  return LastLaunchStatus("fill_panels");
}

absl::Status LaunchReferenceGemm(const CudaWeightSlice& slice, int64_t matrix,
                                 const __nv_bfloat16* in, int64_t in_stride, int64_t num_tokens,
                                 const int64_t* out_features, int64_t num_features, float* out,
                                 cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckCudaSlice(slice));
  if (matrix < 0 || matrix >= slice.num_matrices || num_features < 1 ||
      (out_features == nullptr && num_features != slice.rows())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "reference of ", num_features, " features of matrix ", matrix, " of ", slice.num_matrices));
  }
  if (num_tokens == 0) {
    return absl::OkStatus();
  }
  const auto grid = static_cast<unsigned int>(std::min<int64_t>(num_features, 65535));
  ReferenceGemmKernel<<<grid, kThreads, 0, stream>>>(slice, matrix, in, in_stride, num_tokens,
                                                     out_features, num_features, out);
  return LastLaunchStatus("reference_gemm");
}

}  // namespace lastflop
