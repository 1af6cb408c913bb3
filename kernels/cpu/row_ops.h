#pragma once

#include <cstdint>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/vector_isa.h"

// Small operations on rows that several kernels are made of, in the build that `isa` names.
namespace lastflop {

// out[i * out_stride + j] = bf16(tile[i, j]) for i < num_rows, j < num_cols <= 16; `tile` is
// [num_rows, 16], as PanelGemm writes it.
void StorePanel(const float* tile, int64_t num_rows, int64_t num_cols, Bf16* out,
                int64_t out_stride, VectorIsa isa);

// acc[i] += scale * in[i].
void AddScaled(float scale, const float* in, int64_t size, float* acc, VectorIsa isa);
void AddScaled(float scale, const Bf16* in, int64_t size, float* acc, VectorIsa isa);

// out[i] = bf16(in[i]).
void StoreRow(const float* in, int64_t size, Bf16* out, VectorIsa isa);

// out[i] = bf16(silu(gate[i]) * up[i]), silu(x) = x / (1 + exp(-x)).
void SiluMul(const float* gate, const float* up, int64_t size, Bf16* out, VectorIsa isa);
void SiluMul(const Bf16* gate, const Bf16* up, int64_t size, Bf16* out, VectorIsa isa);

}  // namespace lastflop
