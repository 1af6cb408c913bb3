#pragma once

#include <chrono>

namespace lastflop {

// Kernel and step times.
using Micros = std::chrono::duration<double, std::micro>;

}  // namespace lastflop
