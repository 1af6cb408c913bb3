#pragma once

#include <cstdint>
#include <vector>

namespace lastflop {

// The token ids of a draw from token `first` of the deployment on, uniform over the vocabulary.
std::vector<int32_t> DrawTokenIds(uint64_t seed, int64_t draw, int64_t first, int64_t count,
                                  int64_t vocab_size);

}  // namespace lastflop
