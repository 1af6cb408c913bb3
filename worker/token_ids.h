#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/bf16.h"

namespace lastflop {

// The token ids of a draw from token `first` of the deployment on, uniform over the vocabulary.
std::vector<int32_t> DrawTokenIds(uint64_t seed, int64_t draw, int64_t first, int64_t count,
                                  int64_t vocab_size);

// Activations of a draw where a step begins with experts: uniform with variance 1.
void DrawActivations(uint64_t seed, int64_t draw, std::span<Bf16> out);

}  // namespace lastflop
