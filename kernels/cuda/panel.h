#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model.h"
#include "kernels/cuda/weight_slice.h"

// How the CUDA kernels keep weights that they unpack themselves: in the order in which
// mma.m16n8k16 takes its A operand, so that a lane's weights are 16-byte words that stream from
// memory without a transpose.
//
// A matrix [rows, k] is cut into row blocks of 16 and blocks of k, ordered [row_block][k_block].
// Lane l has g = l / 4 and q = l % 4; its 4 input features of step j (0 to 3) of 64 are
//   k(j, q) = 32 (j / 2) + 8 q + 4 (j % 2) + {0, 1, 2, 3}
// so that a lane's features of 32 are 8 neighbours: one 16-byte word of bf16 activations. Register
// i of the A fragment of step j is row g + 8 (i % 2) at the first (i < 2) or last two of k(j, q).
//
//   bf16: a block is 64 features, 2048 bytes: for j = 0..3, lane l has the 16 bytes of its A
//     fragment.
//   int4_g32: a block is 64 features, 576 bytes.
//     512 B  lane l has words 0..3; word j holds rows g and g + 8 at k(j, q). Nibble i of the low
//            half and of the high half are register i of the A fragment, stored as value + 8.
//      64 B  scales, bf16: for g = 0..7: (row g, group 0), (row g + 8, group 0), (row g, group 1),
//            (row g + 8, group 1).
//   int4_g128: a block is 128 features, 1056 bytes.
//    1024 B  weights as above of features 0..63, then of 64..127.
//      32 B  scales, bf16: for g = 0..7: (row g), (row g + 8).
//   fp8_block: a block is 128 features, 2064 bytes.
//    2048 B  for each 32 features: lane l has 4 words of 4 e4m3 each: (row g, its first four
//            features), (row g + 8, the same), (row g, its last four), (row g + 8, the same).
//            Bytes 0 to 3 of a word are features 2, 0, 3, 1 of the four: one shift then makes bf16
//            pairs of neighbours.
//      16 B  scales, fp32: of rows 0..7, of rows 8..15; 8 bytes of zeros. A row block never
//            crosses a block of 128 rows.
//   nvfp4: a block is 64 features, 576 bytes.
//     512 B  as int4_g32, but for where a half of word j keeps the e2m1 code (sign, 3 bits of
//            magnitude) of register i: i = 0: bits 15, 8..6; 1: bits 12, 5..3; 2: bits 9, 2..0;
//            3: bits 14, 13, 11..10.
//      64 B  scales, e4m3: for g = 0..7, for features 16 h .. 16 h + 15 of each 32 (h = 0, 1):
//            (row g, first 32), (row g + 8, first 32), (row g, last 32), (row g + 8, last 32).
//            One fp32 scale of the tensor goes beside the panels.
//   mxfp4: a block is 64 features, 544 bytes.
//     512 B  as nvfp4.
//      32 B  scales, biased exponents of two: for g = 0..7: (row g, first 32), (row g + 8, first
//            32), (row g, last 32), (row g + 8, last 32).
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

// The panels that `storage` is kept in. Unimplemented: a format, group or block that has none.
absl::StatusOr<WeightFormat> PanelFormatOf(const WeightStorage& storage);

// Input features of a block.
LASTFLOP_HOST_DEVICE constexpr int PanelBlockK(WeightFormat format) {
  return format == WeightFormat::kInt4G128 || format == WeightFormat::kFp8Block ? 128 : 64;
}
LASTFLOP_HOST_DEVICE constexpr int PanelBlockBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4G32:
    case WeightFormat::kNvfp4:
      return 576;
    case WeightFormat::kInt4G128:
      return 1056;
    case WeightFormat::kFp8Block:
      return 2064;
    case WeightFormat::kMxfp4:
      return 544;
    default:
      return 2048;
  }
}
// Input features are a multiple of this.
LASTFLOP_HOST_DEVICE constexpr int PanelColumnUnit(WeightFormat format) {
  switch (format) {
    case WeightFormat::kInt4G32:
    case WeightFormat::kMxfp4:
      return 32;
    case WeightFormat::kInt4G128:
      return 128;
    case WeightFormat::kNvfp4:
      return 16;
    default:
      return 8;
  }
}
LASTFLOP_HOST_DEVICE constexpr int64_t PanelKBlocks(WeightFormat format, int64_t k) {
  return (k + PanelBlockK(format) - 1) / PanelBlockK(format);
}
// Bytes of one matrix [rows, k]; `rows` is a multiple of 16.
LASTFLOP_HOST_DEVICE constexpr int64_t PanelBytesOfMatrix(WeightFormat format, int64_t rows,
                                                          int64_t k) {
  return rows / kRowBlock * PanelKBlocks(format, k) * PanelBlockBytes(format);
}
LASTFLOP_HOST_DEVICE constexpr int64_t PanelBytes(const CudaWeightSlice& slice) {
  return slice.num_matrices * PanelBytesOfMatrix(slice.format, slice.rows(), slice.cols);
}
// Row of the slice (parts in order) that row `r` (0 to 15) of row block `b` is.
LASTFLOP_HOST_DEVICE constexpr int64_t PanelRowOf(CudaRowOrder order, int64_t rows, int64_t b,
                                                  int r) {
  return order == CudaRowOrder::kPlain ? b * kRowBlock + r : (r < 8 ? 0 : rows / 2) + b * 8 + r % 8;
}

}  // namespace lastflop
