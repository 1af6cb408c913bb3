#pragma once

#include <cstdint>
#include <string>

namespace lastflop {

// 16 hex digits (FNV-1a, 64 bit) over a sample of the true weights and token ids that `seed` gives:
// equal wherever the same model runs.
std::string ChecksumOfData(uint64_t seed, int64_t vocab_size, bool zeros);

}  // namespace lastflop
