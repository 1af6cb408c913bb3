#pragma once

#include <cstdint>

#include "kernels/cpu/bf16.h"

// The AVX2 builds of row_ops.h.
namespace lastflop {

void StorePanelAvx2(const float* tile, int64_t num_rows, int64_t num_cols, Bf16* out,
                    int64_t out_stride);
void AddScaledAvx2(float scale, const float* in, int64_t size, float* acc);
void AddScaledAvx2(float scale, const Bf16* in, int64_t size, float* acc);
void StoreRowAvx2(const float* in, int64_t size, Bf16* out);
void SiluMulAvx2(const float* gate, const float* up, int64_t size, Bf16* out);
void SiluMulAvx2(const Bf16* gate, const Bf16* up, int64_t size, Bf16* out);

}  // namespace lastflop
