#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "common/random.h"
#include "kernels/cuda/panel.h"
#include "kernels/cuda/weight_slice.h"
#include "kernels/fp4.h"

// The values of a model's weights as formats store them, evaluated where they are needed.
namespace lastflop {

// values[i] = the true weight of index + i. Four weights share a draw.
template <int kCount>
__device__ inline void TrueWeights(const CudaWeightSlice& slice, uint64_t index,
                                   float (&values)[kCount]) {
  static_assert(kCount % 4 == 0);
  if (index % 4 == 0) {
    const float unit = slice.amplitude * 0x1.0p-15f;
#pragma unroll
    for (int i = 0; i < kCount; i += 4) {
      const uint64_t bits =
          CounterRandom(slice.seed, slice.stream, (index + static_cast<uint64_t>(i)) / 4);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const auto centered = static_cast<int32_t>((bits >> (16 * j)) & 0xFFFF) - 32768;
        values[i + j] = static_cast<float>(centered) * unit;
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] =
        TrueWeight(slice.seed, slice.stream, index + static_cast<uint64_t>(i), slice.amplitude);
  }
}

// Scale of an int4 group: max |w| / 7, as bf16.
__device__ inline float Int4ScaleOf(float absmax) {
  return __bfloat162float(__float2bfloat16_rn(absmax / 7.0f));
}
// round(weight / scale) in -8..7, ties to even; 0 when the scale is 0.
__device__ inline int Int4QuantizeTo(float weight, float scale) {
  const float value = scale > 0.0f ? rintf(weight / scale) : 0.0f;
  return static_cast<int>(fminf(fmaxf(value, -8.0f), 7.0f));
}

// Scale of fp8 weights: the amplitude stands for the largest of every block, as on the CPU.
__device__ inline float Fp8ScaleOf(const CudaWeightSlice& slice) {
  return slice.amplitude / 448.0f;
}
// e4m3 of weight / scale; 0 when the scale is 0.
__device__ inline uint32_t Fp8QuantizeTo(float weight, float scale) {
  return scale > 0 ? __nv_cvt_float_to_fp8(weight / scale, __NV_SATFINITE, __NV_E4M3) : 0u;
}

// Stored values of a group of weights that share a scale.
template <typename WeightOf>
__device__ inline void StoredGroup(const CudaWeightSlice& slice, WeightOf weight, int from,
                                   int count, float* out) {
  float absmax = 0;
  for (int i = from; i < from + count; ++i) {
    absmax = fmaxf(absmax, fabsf(weight(i)));
  }
  float scale = 0;
  switch (slice.format) {
    case WeightFormat::kNvfp4: {
      const float of_tensor = Nvfp4TensorScale(slice.amplitude);
      scale = Nvfp4ScaleValue(Nvfp4GroupScale(absmax, of_tensor)) * of_tensor;
      break;
    }
    case WeightFormat::kMxfp4:
      scale = Mxfp4ScaleValue(Mxfp4GroupScale(absmax));
      break;
    default:
      scale = Int4ScaleOf(absmax);
  }
  const bool is_fp4 = slice.format == WeightFormat::kNvfp4 || slice.format == WeightFormat::kMxfp4;
  for (int i = from; i < from + count; ++i) {
    out[i] = scale * (is_fp4 ? Fp4Value(Fp4CodeOf(weight(i), scale))
                             : static_cast<float>(Int4QuantizeTo(weight(i), scale)));
  }
}

// Weights [begin, begin + count) of a row, as stored, in fp32, by all threads of the block to
// `out`. `begin` is a multiple of the group. Plain loops: the truth of reference kernels.
__device__ inline void StoredWeights(const CudaWeightSlice& slice, int64_t matrix, int64_t row,
                                     int64_t begin, int count, float* out) {
  const uint64_t first = slice.RowIndex(matrix, row) + static_cast<uint64_t>(begin);
  const auto weight = [&](int i) {
    return TrueWeight(slice.seed, slice.stream, first + static_cast<uint64_t>(i), slice.amplitude);
  };
  const int thread = static_cast<int>(threadIdx.x);
  const int num_threads = static_cast<int>(blockDim.x);
  if (slice.format == WeightFormat::kBf16) {
    for (int i = thread; i < count; i += num_threads) {
      out[i] = __bfloat162float(__float2bfloat16_rn(weight(i)));
    }
    return;
  }
  if (slice.format == WeightFormat::kFp8Block) {
    const float scale = Fp8ScaleOf(slice);
    for (int i = thread; i < count; i += num_threads) {
      const auto code = static_cast<__nv_fp8_storage_t>(Fp8QuantizeTo(weight(i), scale));
      out[i] = __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))) * scale;
    }
    return;
  }
  const int group_size = PanelColumnUnit(slice.format);
  for (int group = thread; group < count / group_size; group += num_threads) {
    StoredGroup(slice, weight, group * group_size, group_size, out);
  }
}

// Columns of a row that a reference kernel keeps in shared memory at a time.
inline constexpr int kReferenceCols = 2048;

// out[p * out_stride] (+)= sum over columns of row_of(p)[k] * weight[matrix, row, k] for p in
// [begin, end), by all threads of the block; `row_of(p)` points to the row's activations.
template <typename RowOf>
__device__ inline void ReferenceRows(const CudaWeightSlice& slice, int64_t matrix, int64_t row,
                                     int64_t begin, int64_t end, RowOf row_of, float* out,
                                     int64_t out_stride) {
  __shared__ float weights[kReferenceCols];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t col = 0; col < slice.cols; col += kReferenceCols) {
    const int64_t left = slice.cols - col;
    const int count = left < kReferenceCols ? static_cast<int>(left) : kReferenceCols;
    __syncthreads();
    StoredWeights(slice, matrix, row, col, count, weights);
    __syncthreads();
    for (int64_t p = begin + threadIdx.x / 32; p < end; p += blockDim.x / 32) {
      const __nv_bfloat16* x = row_of(p) + col;
      float sum = 0;
      for (int i = lane; i < count; i += 32) {
        sum += __bfloat162float(x[i]) * weights[i];
      }
      for (int step = 16; step > 0; step /= 2) {
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
      }
      if (lane == 0) {
        float* to = out + p * out_stride;
        *to = col == 0 ? sum : *to + sum;
      }
    }
  }
}

}  // namespace lastflop
