#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model.h"
#include "kernels/cpu/bf16.h"

// How the CPU backend keeps weight matrices in memory.
//
// A matrix [out_features, in_features] is cut into panels of 16 output rows, and a panel holds its
// rows interleaved along in_features, so that a kernel reads it front to back as one stream and
// each 32-byte load gives 8 rows:
//
//   bf16:  for each pair of columns (c, c + 1): 16 lanes of 32 bits, lane i is row i with column c
//          in the lower half. An odd number of columns is padded with zeros.
//   int4:  for each group of 32 or 128 columns: for each 8 columns, 16 lanes of 32 bits; lane i is
//          row i, and nibble j of its lower (upper) half is column 2j (2j + 1) as value + 8; then
//          the group's 16 scales in bf16.
//   fp8:   for each stretch of columns that share scales (128 in fp8_block, all in fp8): for each
//          column, 16 bytes, one a row; then the stretch's 16 scales in fp32.
//
// A matrix may have parts whose rows stand for different things (gate and up; query, key and
// value). Each part starts a panel of its own; missing rows of a part's last panel are zeros.
namespace lastflop {

inline constexpr int64_t kPanelRows = 16;

struct PackedLayout {
  struct Panel {
    int64_t first_row = 0;  // Output feature of its first row, counted over all parts.
    int64_t num_rows = 0;   // 16, or fewer at the end of a part.
  };

  WeightStorage storage;   // group_size is set for int4 and 0 for all else.
  int64_t scale_cols = 0;  // fp8: columns that share a scale.
  int64_t num_matrices = 0;
  std::vector<int64_t> part_rows;
  int64_t rows = 0;           // Output features: the sum of part_rows.
  int64_t cols = 0;           // Input features.
  std::vector<Panel> panels;  // Of one matrix.
  int64_t panel_bytes = 0;
  int64_t matrix_bytes = 0;

  // Unimplemented: a format that the CPU backend has not got. InvalidArgument: cols that the group
  // does not divide (with the remainder), or a size below 1.
  static absl::StatusOr<PackedLayout> Create(const WeightStorage& storage, int64_t num_matrices,
                                             std::vector<int64_t> part_rows, int64_t cols);

  // The same without panels, for ReferenceWeightRow(): also of nvfp4 and mxfp4, which the CPU
  // backend does not run but checks another backend by.
  static absl::StatusOr<PackedLayout> Describe(const WeightStorage& storage, int64_t num_matrices,
                                               std::vector<int64_t> part_rows, int64_t cols);

  int64_t num_panels() const { return static_cast<int64_t>(panels.size()); }
  size_t bytes() const { return static_cast<size_t>(num_matrices * matrix_bytes); }
  int64_t PanelOffset(int64_t matrix, int64_t panel) const {
    return matrix * matrix_bytes + panel * panel_bytes;
  }
};

// Whether the CPU backend stores weights in this format; Unimplemented says which it does.
absl::Status CheckCpuWeightFormat(const WeightStorage& storage);

// Columns that share a scale: of int4 formats; 0 for all others.
int64_t GroupSizeOf(const WeightStorage& storage);

// Whether weights are stored as e2m1 values (kernels/fp4.h).
bool IsFp4(const WeightStorage& storage);

// Whether weights are stored as fp8 e4m3 (kernels/cpu/fp8_panel.h).
bool IsFp8(const WeightStorage& storage);

// Packed matrices somewhere in memory. The data outlives the view.
struct PackedWeights {
  const PackedLayout* layout = nullptr;
  const std::byte* data = nullptr;
  const std::byte* Panel(int64_t matrix, int64_t panel) const {
    return data + layout->PanelOffset(matrix, panel);
  }
};

// Scale of a group of weights: max |w| / 7, as bf16.
Bf16 Int4Scale(std::span<const float> weights);

// round(weight / scale) in -8..7, ties to even; 0 when the scale is 0.
int Int4Quantize(float weight, Bf16 scale);

// Packs rows [rows, cols] (fp32, row-major, all parts in order) as matrix `matrix` at `data`, which
// has layout.bytes(): rounds to bf16 or quantizes. One thread; for tests and small weights.
void PackMatrix(const PackedLayout& layout, int64_t matrix, std::span<const float> values,
                std::byte* data);

// The weights [cols] of one output feature as fp32, the inverse of packing.
void UnpackRow(const PackedWeights& weights, int64_t matrix, int64_t row, std::span<float> out);

}  // namespace lastflop
