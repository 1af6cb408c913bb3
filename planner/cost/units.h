#pragma once

#include <cstdint>

// Units and shares that several parts of the cost model use.
namespace lastflop {

inline constexpr double kEighty = 1.28;  // Standard deviations that hold 80% of a normal.
inline constexpr double kBytesPerMicroPerGbPerS = 1e3;
inline constexpr double kBytesPerMicroPerTbPerS = 1e6;
inline constexpr double kFlopPerMicroPerTflopPerS = 1e6;

inline double ToDouble(int64_t value) { return static_cast<double>(value); }

}  // namespace lastflop
