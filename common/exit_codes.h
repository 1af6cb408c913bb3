#pragma once

namespace lastflop {

// What every binary exits with.
inline constexpr int kExitFinished = 0;    // Findings of any kind are results.
inline constexpr int kExitRegression = 1;  // Baseline failed, or `compare` found a regression.
inline constexpr int kExitUsage = 2;       // Usage or input.
inline constexpr int kExitUnfinished = 3;  // Budget or cancelled: resumable.
inline constexpr int kExitUnreachable = 4;
inline constexpr int kExitInternal = 5;
inline constexpr int kExitInterrupted = 130;

}  // namespace lastflop
