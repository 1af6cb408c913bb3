#pragma once

#include <cstdint>

#include "kernels/cpu/bf16.h"

// The AVX2 build of FillRandomWeights: one row of a stretch of columns, straight into a panel.
namespace lastflop {

// Weights 4 * first_draw and on of a tensor.
struct RowDraws {
  uint64_t seed = 0;
  uint64_t stream = 0;
  uint64_t first_draw = 0;
  float unit = 0;  // amplitude * 2^-15
};

// `cols` is a multiple of 8. lanes[i * 16] gets columns 2i and 2i + 1.
void FillBf16RowAvx2(const RowDraws& draws, int64_t cols, uint32_t* lanes);

// `count` is a multiple of 8: so many weights in a row, as a table of rows has them.
void FillBf16Avx2(const RowDraws& draws, int64_t count, Bf16* out);

// `group` is 32 or 128. lanes[i * 16] gets columns 8i to 8i + 7.
void FillInt4RowAvx2(const RowDraws& draws, int64_t group, uint32_t* lanes, Bf16* scale);

}  // namespace lastflop
