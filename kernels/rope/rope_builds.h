#pragma once

#include <cstdint>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp8.h"

// The builds of rope's inner parts.
namespace lastflop {

// Turns in[0, 2 * half) into out, which may be the same memory.
void TurnPortable(const float* cosines, const float* sines, int64_t half, const Bf16* in,
                  Bf16* out);
void TurnAvx2(const float* cosines, const float* sines, int64_t half, const Bf16* in, Bf16* out);

// out[i] = fp8(in[i]), rounded to nearest even, 448 at most.
void Bf16ToFp8Portable(const Bf16* in, int64_t count, Fp8* out);
void Bf16ToFp8Avx2(const Bf16* in, int64_t count, Fp8* out);

}  // namespace lastflop
