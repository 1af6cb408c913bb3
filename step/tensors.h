#pragma once

#include <cstdint>
#include <map>

#include "step/op.h"

namespace lastflop {

// Bytes of each activation that a step's ops read or write: the largest any of them needs.
std::map<Tensor, int64_t> TensorBytes(const Step& step);

// Bytes of the weights that an op holds in memory, whether or not this step touches them: all local
// experts, the whole vocabulary slice. 0 without weights, and for the ops of separately
// dequantized experts, whose weights the dequant op holds.
double WeightMemoryBytes(const Op& op);

// Bytes of the KV cache of one layer that an attention op reads; 0 for other ops.
double CacheMemoryBytes(const Op& op);

}  // namespace lastflop
