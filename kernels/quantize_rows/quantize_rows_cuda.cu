#include <cuda_fp8.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/quantize_rows/quantize_rows_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 256;

__device__ inline uint32_t QuantizeTo(float value, float scale) {
  return scale > 0 ? __nv_cvt_float_to_fp8(value / scale, __NV_SATFINITE, __NV_E4M3) : 0u;
}

// A warp a block of 128 features, four neighbours a lane.
__global__ void QuantizeRowsKernel(int64_t rows, int64_t blocks_of_row, const int32_t* num_rows,
                                   const __nv_bfloat16* in, unsigned char* out) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t num_blocks = (num_rows != nullptr ? *num_rows : rows) * blocks_of_row;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  for (int64_t block = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
       block < num_blocks; block += num_warps) {
    const uint2 pairs =
        *reinterpret_cast<const uint2*>(in + block * kQuantizedBlockFeatures + 4 * lane);
    const float v[4] = {LowBf16(pairs.x), HighBf16(pairs.x), LowBf16(pairs.y), HighBf16(pairs.y)};
    float absmax = fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3])));
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
      absmax = fmaxf(absmax, __shfl_xor_sync(0xFFFFFFFFu, absmax, step));
    }
    const float scale = absmax / 448.0f;
    unsigned char* to = out + block * kQuantizedBlockBytes;
    reinterpret_cast<uint32_t*>(to)[lane] = QuantizeTo(v[2], scale) | QuantizeTo(v[0], scale) << 8 |
                                            QuantizeTo(v[3], scale) << 16 |
                                            QuantizeTo(v[1], scale) << 24;
    if (lane == 0) {
      *reinterpret_cast<uint4*>(to + kQuantizedBlockFeatures) =
          make_uint4(__float_as_uint(scale), 0, 0, 0);
    }
  }
}

}  // namespace

absl::Status LaunchQuantizeRows(int64_t rows, int64_t cols, const int32_t* num_rows,
                                const __nv_bfloat16* in, void* out, cudaStream_t stream) {
  if (rows < 0 || cols < 1 || cols % kQuantizedBlockFeatures != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "moe.activations=fp8: rows of ", cols, " features in blocks of ", kQuantizedBlockFeatures,
        ": ", cols, " mod ", kQuantizedBlockFeatures, " = ", cols % kQuantizedBlockFeatures));
  }
  if (rows == 0) {
    return absl::OkStatus();
  }
  const int64_t blocks_of_row = cols / kQuantizedBlockFeatures;
  const int64_t warps = rows * blocks_of_row;
  const auto grid = static_cast<unsigned int>(
      std::clamp<int64_t>((warps + kThreads / 32 - 1) / (kThreads / 32), 1, 2048));
  return LaunchOverlapping("quantize_rows", QuantizeRowsKernel, dim3(grid), kThreads, 0, stream,
                           rows, blocks_of_row, num_rows, in, static_cast<unsigned char*>(out));
}

}  // namespace lastflop
