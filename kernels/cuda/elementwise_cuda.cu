#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/elementwise_cuda.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_ops.cuh"

namespace lastflop {
namespace {

constexpr int kThreads = 256;

__device__ void AddTo(float addend, float* to) { *to += addend; }
__device__ void AddTo(float addend, __nv_bfloat16* to) {
  *to = __float2bfloat16_rn(__bfloat162float(*to) + addend);
}

template <typename T>
__global__ void AddBiasKernel(int64_t count, int64_t cols, const __nv_bfloat16* bias, T* out) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) {
    AddTo(__bfloat162float(bias[i % cols]), out + i);
  }
}

template <int kRun>
__global__ void AddKernel(int64_t runs, const __nv_bfloat16* in, __nv_bfloat16* out) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < runs) {
    Bf16Run<kRun> sum = Bf16Run<kRun>::Load(out + i * kRun);
    const Bf16Run<kRun> addend = Bf16Run<kRun>::Load(in + i * kRun);
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      sum.values[j] += addend.values[j];
    }
    sum.Store(out + i * kRun);
  }
}

unsigned BlocksFor(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}

template <typename T>
absl::Status RunAddBias(int64_t rows, int64_t cols, const __nv_bfloat16* bias, T* out,
                        cudaStream_t stream) {
  if (rows < 0 || cols < 1) {
    return absl::InvalidArgumentError(absl::StrCat("add_bias: rows=", rows, " cols=", cols));
  }
  if (rows == 0) {
    return absl::OkStatus();
  }
  return LaunchOverlapping("add_bias", AddBiasKernel<T>, dim3(BlocksFor(rows * cols)), kThreads, 0,
                           stream, rows * cols, cols, bias, out);
}

}  // namespace

absl::Status LaunchAddBias(int64_t rows, int64_t cols, const __nv_bfloat16* bias,
                           __nv_bfloat16* out, cudaStream_t stream) {
  return RunAddBias(rows, cols, bias, out, stream);
}

absl::Status LaunchAddBias(int64_t rows, int64_t cols, const __nv_bfloat16* bias, float* out,
                           cudaStream_t stream) {
  return RunAddBias(rows, cols, bias, out, stream);
}

absl::Status LaunchAdd(int64_t count, const __nv_bfloat16* in, __nv_bfloat16* out,
                       cudaStream_t stream) {
  if (count < 0) {
    return absl::InvalidArgumentError(absl::StrCat("add: count=", count));
  }
  if (count == 0) {
    return absl::OkStatus();
  }
  const int run = count % 8 == 0 ? 8 : 1;
  return LaunchOverlapping("add", run == 8 ? AddKernel<8> : AddKernel<1>,
                           dim3(BlocksFor(count / run)), kThreads, 0, stream, count / run, in, out);
}

}  // namespace lastflop
