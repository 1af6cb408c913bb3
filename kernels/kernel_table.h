#pragma once

#include <span>

#include "kernels/kernel.h"

namespace lastflop {

// Every kernel, in the order of a step.
std::span<const KernelInfo> KernelTable();

}  // namespace lastflop
