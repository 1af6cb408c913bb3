#pragma once

#include <optional>

namespace lastflop {

// CPU time since some fixed moment, in seconds summed over processors.
struct CpuSeconds {
  double busy = 0;   // Of the whole host: not idle, not waiting for a disk; stolen time is busy.
  double total = 0;  // Of the whole host: wall time times processors.
  double own = 0;    // Of this process and its direct children.
};

// From /proc; absent where that cannot be read.
std::optional<CpuSeconds> ReadCpuSeconds();

// The share of the host's processors, 0 to 1, that others than `own` took between two readings:
// `own` is what all ranks of a gang on the host took. Absent for less than 0.2 s on every
// processor, in which the kernel's ticks of 10 ms say too little.
std::optional<double> ShareElsewhere(const CpuSeconds& before, const CpuSeconds& after, double own);

}  // namespace lastflop
