#pragma once

#include <cstdint>

#include "kernels/cpu/bf16.h"

// The builds of one row of rms_norm. `residual` is null for a norm without one; `in`, `residual`
// and `out` may be the same memory.
namespace lastflop {

struct NormRow {
  const Bf16* in = nullptr;
  Bf16* residual = nullptr;
  const Bf16* gain = nullptr;
  Bf16* out = nullptr;
  int64_t size = 0;
  float epsilon = 0;
  bool add_residual = false;
};

void RmsNormRowPortable(const NormRow& row);
void RmsNormRowAvx2(const NormRow& row);

}  // namespace lastflop
