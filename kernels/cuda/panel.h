#pragma once

#include <cstdint>

#include "kernels/cuda/weight_slice.h"

// How the CUDA kernels keep expert weights: in the order in which mma.m16n8k16 takes its A operand,
// so that a lane's weights are 16-byte words that stream from memory without a transpose.
//
// A matrix [rows, k] is cut into row blocks of 16 and blocks of k, ordered [row_block][k_block].
// Lane l has g = l / 4 and q = l % 4; its 4 input features of step j (0 to 3) of 64 are
//   k(j, q) = 32 (j / 2) + 8 q + 4 (j % 2) + {0, 1, 2, 3}
// so that a lane's features of 32 are 8 neighbours: one 16-byte word of bf16 activations.
//
//   int4, group 32: a block is 64 features, 576 bytes.
//     512 B  lane l has words 0..3; word j holds rows g and g + 8 at k(j, q). Nibble i of the low
//            half and of the high half are register i of the A fragment: (row g, k0 k1), (row
//            g + 8, k0 k1), (row g, k2 k3), (row g + 8, k2 k3), stored as value + 8.
//      64 B  scales, bf16: for g = 0..7: (row g, group 0), (row g + 8, group 0), (row g, group 1),
//            (row g + 8, group 1).
//   int4, group 128: a block is 128 features, 1056 bytes.
//    1024 B  weights as above of features 0..63, then of 64..127.
//      32 B  scales, bf16: for g = 0..7: (row g), (row g + 8).
//   bf16: a block is 64 features, 2048 bytes: for j = 0..3, lane l has the 16 bytes of its A
//     fragment: rows and features as the registers above.
//
// Features past k in the last block are zeros.
namespace lastflop {

// Which rows of the matrix the 16 rows of a row block are.
enum class CudaRowOrder {
  kPlain,     // down: row block b has rows 16 b .. 16 b + 15.
  kGateAndUp  // gate_up (two parts of equal size): rows 8 b .. 8 b + 7 of gate, then the same rows
              // of up: SwiGLU's two inputs meet in one lane.
};

inline constexpr int kRowBlock = 16;

// Input features of a block.
LASTFLOP_HOST_DEVICE constexpr int PanelBlockK(int group_size) {
  return group_size == 128 ? 128 : 64;
}
LASTFLOP_HOST_DEVICE constexpr int PanelBlockBytes(int group_size) {
  return group_size == 0 ? 2048 : group_size == 128 ? 1056 : 576;
}
LASTFLOP_HOST_DEVICE constexpr int64_t PanelKBlocks(int group_size, int64_t k) {
  return (k + PanelBlockK(group_size) - 1) / PanelBlockK(group_size);
}
// Bytes of one matrix [rows, k]; `rows` is a multiple of 16.
LASTFLOP_HOST_DEVICE constexpr int64_t PanelBytesOfMatrix(int group_size, int64_t rows, int64_t k) {
  return rows / kRowBlock * PanelKBlocks(group_size, k) * PanelBlockBytes(group_size);
}
LASTFLOP_HOST_DEVICE constexpr int64_t PanelBytes(const CudaWeightSlice& slice) {
  return slice.num_matrices * PanelBytesOfMatrix(slice.group_size, slice.rows(), slice.cols);
}
// Row of the slice (parts in order) that row `r` (0 to 15) of row block `b` is.
LASTFLOP_HOST_DEVICE constexpr int64_t PanelRowOf(CudaRowOrder order, int64_t rows, int64_t b,
                                                  int r) {
  return order == CudaRowOrder::kPlain ? b * kRowBlock + r : (r < 8 ? 0 : rows / 2) + b * 8 + r % 8;
}

}  // namespace lastflop
