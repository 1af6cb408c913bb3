#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_ops.cuh"
#include "kernels/rms_norm/rms_norm.h"
#include "kernels/rms_norm/rms_norm_cuda.h"

namespace lastflop {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kPartsThreads = 128;  // Where a part is a warp's.
constexpr int kHeldRuns = 4;        // Runs a thread that stay in registers between the two passes.

// Sum over the threads of a block.
__device__ float BlockSum(float value) {
  __shared__ float sums[32];
  value = WarpSum(value);
  const int lane = threadIdx.x % 32;
  if (lane == 0) {
    sums[threadIdx.x / 32] = value;
  }
  __syncthreads();
  return WarpSum(lane < static_cast<int>(blockDim.x) / 32 ? sums[lane] : 0.0f);
}

// What a block or a warp norms: `in` may be `residual` and `out`.
struct NormRow {
  const __nv_bfloat16* in;
  const __nv_bfloat16* addend;  // Null: none.
  __nv_bfloat16* residual;      // Null: not kept.
  const __nv_bfloat16* gain;
  __nv_bfloat16* out;
  int size;
  float epsilon;
};

template <int kRun>
__device__ Bf16Run<kRun> Residual(const NormRow& row, int i) {
  Bf16Run<kRun> run = Bf16Run<kRun>::Load(row.in + i);
  if (row.addend != nullptr) {
    const Bf16Run<kRun> addend = Bf16Run<kRun>::Load(row.addend + i);
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      run.values[j] = RoundedToBf16(run.values[j] + addend.values[j]);
    }
  }
  return run;
}

template <int kRun>
__device__ void WriteNormed(const NormRow& row, Bf16Run<kRun> run, float scale, int i) {
  const Bf16Run<kRun> gain = Bf16Run<kRun>::Load(row.gain + i);
#pragma unroll
  for (int j = 0; j < kRun; ++j) {
    run.values[j] *= scale * gain.values[j];
  }
  run.Store(row.out + i);
}

// Rows of up to kHeldRuns runs a thread are read once. Longer ones are read again from where the
// first pass left them (their residual, or `in` where none is kept and nothing was added).
template <int kRun, bool kByWarp>
__device__ void NormOneRow(const NormRow& row) {
  const int threads = kByWarp ? 32 : static_cast<int>(blockDim.x);
  const int step = threads * kRun;
  const int first = static_cast<int>(threadIdx.x) % threads * kRun;
  Bf16Run<kRun> held[kHeldRuns];
  float sum = 0;
  const auto visit = [&](const Bf16Run<kRun>& run, int i) {
    if (row.residual != nullptr) {
      run.Store(row.residual + i);
    }
#pragma unroll
    for (int j = 0; j < kRun; ++j) {
      sum += run.values[j] * run.values[j];
    }
  };
#pragma unroll
  for (int k = 0; k < kHeldRuns; ++k) {
    if (first + k * step < row.size) {
      held[k] = Residual<kRun>(row, first + k * step);
      visit(held[k], first + k * step);
    }
  }
  for (int i = first + kHeldRuns * step; i < row.size; i += step) {
    visit(Residual<kRun>(row, i), i);
  }
  const float total = kByWarp ? WarpSum(sum) : BlockSum(sum);
  const float mean = total / static_cast<float>(row.size);
  const float scale = 1.0f / sqrtf(mean + row.epsilon);
#pragma unroll
  for (int k = 0; k < kHeldRuns; ++k) {
    if (first + k * step < row.size) {
      WriteNormed<kRun>(row, held[k], scale, first + k * step);
    }
  }
  const __nv_bfloat16* again = row.residual != nullptr ? row.residual : row.in;
  for (int i = first + kHeldRuns * step; i < row.size; i += step) {
    WriteNormed<kRun>(row, Bf16Run<kRun>::Load(again + i), scale, i);
  }
}

template <int kRun>
__global__ void RmsNormKernel(NormShape shape, const __nv_bfloat16* in, __nv_bfloat16* residual,
                              const __nv_bfloat16* gain, __nv_bfloat16* out) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t at = blockIdx.x * shape.size;
  NormOneRow<kRun, false>({.in = in + at,
                           .addend = shape.add_residual ? residual + at : nullptr,
                           .residual = residual + at,
                           .gain = gain,
                           .out = out + at,
                           .size = static_cast<int>(shape.size),
                           .epsilon = static_cast<float>(shape.epsilon)});
}

// A block a part, or a warp where parts are short.
template <int kRun, bool kByWarp>
__global__ void RmsNormPartsKernel(NormShape shape, __nv_bfloat16* data,
                                   const __nv_bfloat16* gain) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t a_block = kByWarp ? kPartsThreads / 32 : 1;
  const int64_t index = blockIdx.x * a_block + (kByWarp ? threadIdx.x / 32 : 0);
  if (index >= shape.rows * shape.parts) {
    return;
  }
  __nv_bfloat16* const part =
      data + index / shape.parts * shape.stride + shape.offset + index % shape.parts * shape.size;
  NormOneRow<kRun, kByWarp>({.in = part,
                             .addend = nullptr,
                             .residual = nullptr,
                             .gain = gain,
                             .out = part,
                             .size = static_cast<int>(shape.size),
                             .epsilon = static_cast<float>(shape.epsilon)});
}

// Few runs a thread: a row is short, and its latency is what counts.
int ThreadsOf(int64_t runs) {
  return static_cast<int>(std::min<int64_t>(kMaxThreads, (runs + 31) / 32 * 32));
}

}  // namespace

absl::Status LaunchRmsNorm(const NormShape& shape, const __nv_bfloat16* in, __nv_bfloat16* residual,
                           const __nv_bfloat16* gain, __nv_bfloat16* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateRmsNorm(shape));
  if (shape.parts != 1 || shape.stride != shape.size || shape.offset != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rms_norm: stride=", shape.stride, " parts=", shape.parts, " offset=", shape.offset,
        " of size=", shape.size, ": a norm with a residual is over whole rows"));
  }
  if (shape.rows == 0) {
    return absl::OkStatus();
  }
  const int run = shape.size % 8 == 0 ? 8 : 1;
  return LaunchOverlapping("rms_norm", run == 8 ? RmsNormKernel<8> : RmsNormKernel<1>,
                           dim3(static_cast<unsigned>(shape.rows)), ThreadsOf(shape.size / run), 0,
                           stream, shape, in, residual, gain, out);
}

absl::Status LaunchRmsNormParts(const NormShape& shape, __nv_bfloat16* data,
                                const __nv_bfloat16* gain, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateRmsNorm(shape));
  if (shape.rows == 0 || shape.parts == 0) {
    return absl::OkStatus();
  }
  const bool is_aligned = shape.size % 8 == 0 && shape.stride % 8 == 0 && shape.offset % 8 == 0;
  const int run = is_aligned ? 8 : 1;
  const int64_t parts = shape.rows * shape.parts;
  if (shape.size <= 32 * run * kHeldRuns) {
    constexpr int64_t kWarps = kPartsThreads / 32;
    return LaunchOverlapping("rms_norm parts",
                             run == 8 ? RmsNormPartsKernel<8, true> : RmsNormPartsKernel<1, true>,
                             dim3(static_cast<unsigned>((parts + kWarps - 1) / kWarps)),
                             kPartsThreads, 0, stream, shape, data, gain);
  }
  return LaunchOverlapping("rms_norm parts",
                           run == 8 ? RmsNormPartsKernel<8, false> : RmsNormPartsKernel<1, false>,
                           dim3(static_cast<unsigned>(parts)), ThreadsOf(shape.size / run), 0,
                           stream, shape, data, gain);
}

}  // namespace lastflop
