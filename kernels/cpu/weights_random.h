#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"

namespace lastflop {

// Which part of a model's weight tensor a rank holds. The full tensor is [matrices, rows_full,
// cols_full] (matrices: experts, or heads, or 1), and its true values are
// TrueWeight(seed, stream, index, amplitude) of common/random.h with the index over the full
// tensor: every slicing and every format stores the same model.
struct WeightSlice {
  uint64_t seed = 0;
  uint64_t stream = 0;  // Unique to the tensor (weight kind and layer).
  float amplitude = 0;  // sqrt(3 / in_features of the model)
  int64_t rows_full = 0;
  int64_t cols_full = 0;
  int64_t first_matrix = 0;  // The slice's matrix m is the model's first_matrix + m.
  // Row of the full matrix where part p of the layout begins. Under tensor parallelism the gate
  // part of rank r begins at r * intermediate / ranks, the up part at intermediate + the same.
  std::vector<int64_t> part_row_begin;
  int64_t col_begin = 0;
};

// InvalidArgument when the slice does not lie within the tensor, or parts and layout disagree.
absl::Status CheckSlice(const WeightSlice& slice, const PackedLayout& layout);

// Writes the slice's weights in `layout` at `data` (layout.bytes(), 64-byte aligned), on all
// threads of the pool. The slice passed CheckSlice.
void FillRandomWeights(const WeightSlice& slice, const PackedLayout& layout, std::byte* data,
                       ThreadPool& pool);

// The true weights [cols] of one output feature of the slice, before any rounding.
void TrueWeightRow(const WeightSlice& slice, const PackedLayout& layout, int64_t matrix,
                   int64_t row, std::span<float> out);

// The weights [cols] of one output feature of the slice as the format stores them, in fp32:
// computed from TrueWeight by plain loops, without a packed copy. The reference of what
// FillRandomWeights writes, and the weights of reference kernels.
void ReferenceWeightRow(const WeightSlice& slice, const PackedLayout& layout, int64_t matrix,
                        int64_t row, std::span<float> out);

}  // namespace lastflop
