#pragma once

#include <cstdint>

namespace lastflop {

// sum over i of exp(in[i] - max)
float ExpSumPortable(const float* in, int64_t count, float max);
float ExpSumAvx2(const float* in, int64_t count, float max);

// out[i] = 1 / (1 + exp(-in[i]))
void SigmoidPortable(const float* in, int64_t count, float* out);
void SigmoidAvx2(const float* in, int64_t count, float* out);

}  // namespace lastflop
