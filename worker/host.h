#pragma once

#include <string>

#include "common/machine.h"

namespace lastflop {

// This host's processors, memory and last-level cache; nothing is measured here. Memory is the
// smaller of the machine's and the control group's limit.
Machine DetectCpuMachine();

// 16 hex digits over the bytes of the running binary: results of different builds are told apart.
std::string BuildHash();

}  // namespace lastflop
