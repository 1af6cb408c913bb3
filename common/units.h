#pragma once

#include <chrono>

namespace lastflop {

// Kernel and step times.
using Micros = std::chrono::duration<double, std::micro>;

// One GiB, for texts that people read.
inline constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;

// 1 GB/s = 1e9 B/s = 1e3 B/us: times a rate in GB/s gives bytes per microsecond.
inline constexpr double kBytesPerMicroPerGbPerS = 1e3;

}  // namespace lastflop
