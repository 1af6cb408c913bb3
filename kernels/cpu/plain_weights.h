#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/model.h"
#include "kernels/cpu/packed_weights.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cpu/weights_random.h"

// Weights as checkpoints store them, row by row, which kernels from elsewhere (plugins, libraries)
// take: plugin/lastflop_plugin.h says how each format lies. Scales follow the weights.
namespace lastflop {

struct PlainLayout {
  WeightStorage storage;  // group_size and block_rows as they are, 0 without.
  int64_t num_matrices = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  size_t scale_begin = 0;  // Byte at which scales begin, a multiple of 256.
  size_t scale_bytes = 0;  // 0 without scales.

  // Unimplemented: a format that has no plain form. InvalidArgument: columns that a group, or two
  // weights a byte, do not divide.
  static absl::StatusOr<PlainLayout> Create(const WeightStorage& storage, int64_t num_matrices,
                                            int64_t rows, int64_t cols);
  size_t bytes() const { return scale_begin + scale_bytes; }
};

// Writes the slice's weights at `data` (plain.bytes()), on all threads of the pool: the values of
// ReferenceWeightRow(). `layout` describes the same weights as panels. bf16, int4 and fp8_block.
void FillPlainWeights(const WeightSlice& slice, const PackedLayout& layout,
                      const PlainLayout& plain, std::byte* data, ThreadPool& pool);

}  // namespace lastflop
