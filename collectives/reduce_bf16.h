#pragma once

#include <cstdint>
#include <span>

// Sums of bf16 rows for the CPU collectives. bf16 values are passed as their 16 bits.
namespace lastflop {

// out[i] = bf16(sum over r of rows[r][i]), summed in fp32 in the order of `rows`, rounded once to
// nearest even. `out` may be one of the rows.
void SumBf16Rows(std::span<const uint16_t* const> rows, int64_t count, uint16_t* out);

// out[i] = partial[i] + in[i]; a null `partial` is zeros. `out` may be `partial`.
void AddPartial(const float* partial, const uint16_t* in, int64_t count, float* out);

// out[i] = bf16(in[i]), to nearest even.
void RoundToBf16Row(const float* in, int64_t count, uint16_t* out);

}  // namespace lastflop
