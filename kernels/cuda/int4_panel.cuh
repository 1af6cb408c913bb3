#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "common/random.h"

// How the CUDA kernels keep int4 weights of group 32: in the order in which mma.m16n8k16 takes its
// A operand, so that a lane's weights of 64 input features are one 16-byte word and stream from
// memory without a transpose.
//
// A matrix [rows, k] is cut into row blocks of 16 and blocks of 64 input features. Block
// [row_block][k_block] is 576 contiguous bytes:
//   512 B  weights: lane l (g = l / 4, q = l % 4) has words 0..3; word j holds rows g and g + 8 at
//          the 4 input features k(j, q) = 64 k_block + 32 (j / 2) + 8 q + 4 (j % 2) + {0, 1, 2, 3}.
//          Nibble i of the low half and of the high half are register i of the A fragment (PTX ISA,
//          "Matrix Fragments for mma.m16n8k16"): (row g, k0 k1), (row g + 8, k0 k1), (row g, k2
//          k3), (row g + 8, k2 k3), stored as value + 8.
//    64 B  scales, bf16: for g = 0..7: (row g, group 0), (row g + 8, group 0), (row g, group 1),
//          (row g + 8, group 1).
// A mma's 16 features all belong to one group of 32, so that a group's sum is scaled once.
namespace lastflop {

inline constexpr int kPanelRows = 16;
inline constexpr int kPanelK = 64;
inline constexpr int kPanelWeightBytes = 512;
inline constexpr int kPanelBytes = 576;

// Which rows of the model's matrix the 16 rows of a row block are.
enum class PanelRowOrder {
  kPlain,     // down: row block b has rows 16 b .. 16 b + 15.
  kGateAndUp  // gate_up: rows 8 b .. 8 b + 7 of gate, then the same rows of up: SwiGLU's two
              // inputs meet in one lane.
};

// The part of a model's tensor [matrices, rows_full, cols_full] that one rank's panels hold, as
// kernels/cpu/weights_random.h has it; true values by TrueWeight().
struct PanelSlice {
  uint64_t seed = 0;
  uint64_t stream = 0;
  float amplitude = 0;
  int64_t rows_full = 0;
  int64_t cols_full = 0;
  int64_t first_matrix = 0;
  int64_t row_begin = 0;     // Plain, or of gate.
  int64_t up_row_begin = 0;  // kGateAndUp.
  int64_t col_begin = 0;
  int num_matrices = 0;
  int rows = 0;  // Of the slice; kGateAndUp: gate and up together.
  int k = 0;
  PanelRowOrder order = PanelRowOrder::kPlain;
};

__host__ __device__ inline int64_t PanelMatrixBytes(int rows, int k) {
  return static_cast<int64_t>(rows / kPanelRows) * (k / kPanelK) * kPanelBytes;
}

// Row of the full matrix that row `r` (0 to 15) of row block `b` is.
__host__ __device__ inline int64_t PanelRow(const PanelSlice& slice, int b, int r) {
  if (slice.order == PanelRowOrder::kPlain) {
    return slice.row_begin + static_cast<int64_t>(b) * kPanelRows + r;
  }
  return (r < 8 ? slice.row_begin : slice.up_row_begin) + static_cast<int64_t>(b) * 8 + r % 8;
}

#if defined(__CUDACC__)

// One value of the model, quantized: symmetric, scale = absmax / 7 as bf16, rounded to nearest
// even.
__device__ inline float GroupScale(float absmax) {
  return __bfloat162float(__float2bfloat16_rn(absmax * (1.0f / 7.0f)));
}
__device__ inline int Quantize(float value, float scale) {
  const float q = scale > 0.0f ? rintf(value / scale) : 0.0f;
  return static_cast<int>(fminf(fmaxf(q, -8.0f), 7.0f));
}

// Writes all panels of a slice. One warp a block; grid-stride.
static __global__ void FillPanels(PanelSlice slice, unsigned char* out) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int q = lane % 4;
  const int num_row_blocks = slice.rows / kPanelRows;
  const int num_k_blocks = slice.k / kPanelK;
  const int64_t num_blocks =
      static_cast<int64_t>(slice.num_matrices) * num_row_blocks * num_k_blocks;
  const int64_t num_warps = static_cast<int64_t>(gridDim.x) * blockDim.x / 32;
  for (int64_t block = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
       block < num_blocks; block += num_warps) {
    const int k_block = static_cast<int>(block % num_k_blocks);
    const int row_block = static_cast<int>(block / num_k_blocks % num_row_blocks);
    const int64_t matrix = slice.first_matrix + block / num_k_blocks / num_row_blocks;
    uint32_t words[4] = {0, 0, 0, 0};
    float scales[2][2];  // [group][row g or g + 8]
    for (int group = 0; group < 2; ++group) {
      for (int half = 0; half < 2; ++half) {
        const int64_t row = PanelRow(slice, row_block, g + 8 * half);
        const int64_t first = (matrix * slice.rows_full + row) * slice.cols_full + slice.col_begin +
                              k_block * kPanelK + 32 * group + 8 * q;
        float values[8];
        float absmax = 0;
        for (int i = 0; i < 8; ++i) {
          values[i] = TrueWeight(slice.seed, slice.stream, static_cast<uint64_t>(first + i),
                                 slice.amplitude);
          absmax = fmaxf(absmax, fabsf(values[i]));
        }
        absmax = fmaxf(absmax, __shfl_xor_sync(0xFFFFFFFFu, absmax, 1));
        absmax = fmaxf(absmax, __shfl_xor_sync(0xFFFFFFFFu, absmax, 2));
        scales[group][half] = GroupScale(absmax);
        for (int i = 0; i < 8; ++i) {
          const uint32_t nibble =
              static_cast<uint32_t>(Quantize(values[i], scales[group][half]) + 8);
          const int word = 2 * group + i / 4;
          const int reg = 2 * (i % 4 / 2) + half;
          words[word] |= nibble << (4 * reg + 16 * (i % 2));
        }
      }
    }
    unsigned char* panel = out + block * kPanelBytes;
    *reinterpret_cast<uint4*>(panel + 16 * lane) =
        make_uint4(words[0], words[1], words[2], words[3]);
    if (q == 0) {
      auto* scale = reinterpret_cast<__nv_bfloat16*>(panel + kPanelWeightBytes + 8 * g);
      scale[0] = __float2bfloat16_rn(scales[0][0]);
      scale[1] = __float2bfloat16_rn(scales[0][1]);
      scale[2] = __float2bfloat16_rn(scales[1][0]);
      scale[3] = __float2bfloat16_rn(scales[1][1]);
    }
  }
}

// The slice's weights, dequantized, in fp32 [matrices, rows, k], computed from TrueWeight
// without panels: what reference kernels multiply with. kGateAndUp: gate rows first.
static __global__ void FillDequantized(PanelSlice slice, float* out) {
  const int64_t num_groups = static_cast<int64_t>(slice.num_matrices) * slice.rows * (slice.k / 32);
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < num_groups;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t group = i % (slice.k / 32);
    const int64_t local_row = i / (slice.k / 32) % slice.rows;
    const int64_t matrix = i / (slice.k / 32) / slice.rows;
    const bool is_up = slice.order == PanelRowOrder::kGateAndUp && local_row >= slice.rows / 2;
    const int64_t row =
        is_up ? slice.up_row_begin + local_row - slice.rows / 2 : slice.row_begin + local_row;
    const int64_t first =
        ((slice.first_matrix + matrix) * slice.rows_full + row) * slice.cols_full +
        slice.col_begin + 32 * group;
    float absmax = 0;
    for (int k = 0; k < 32; ++k) {
      absmax = fmaxf(absmax, fabsf(TrueWeight(slice.seed, slice.stream,
                                              static_cast<uint64_t>(first + k), slice.amplitude)));
    }
    const float scale = GroupScale(absmax);
    for (int k = 0; k < 32; ++k) {
      const float value =
          TrueWeight(slice.seed, slice.stream, static_cast<uint64_t>(first + k), slice.amplitude);
      out[(matrix * slice.rows + local_row) * slice.k + 32 * group + k] =
          static_cast<float>(Quantize(value, scale)) * scale;
    }
  }
}

#endif  // __CUDACC__

}  // namespace lastflop
