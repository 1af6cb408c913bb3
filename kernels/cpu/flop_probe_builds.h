#pragma once

#include <cstdint>

// Runs of multiply-adds on registers. What they compute is returned, so that none is left out.
namespace lastflop {

inline constexpr int64_t kProbeChains = 12;  // Independent, of a vector of eight lanes each.
inline constexpr int64_t kProbeLanes = 8;

// num_rounds times a multiply-add of every lane of every chain.
float MultiplyAddPortable(int64_t num_rounds);
float MultiplyAddAvx2(int64_t num_rounds);

}  // namespace lastflop
