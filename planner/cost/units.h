#pragma once

// Units and shares that several parts of the cost model use.
namespace lastflop {

inline constexpr double kEighty = 1.28;  // Standard deviations that hold 80% of a normal.
inline constexpr double kBytesPerMicroPerGbPerS = 1e3;
inline constexpr double kBytesPerMicroPerTbPerS = 1e6;
inline constexpr double kFlopPerMicroPerTflopPerS = 1e6;

}  // namespace lastflop
