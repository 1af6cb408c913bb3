#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/machine.h"

namespace lastflop {

// Equal on two processes means: the same running host (boot id and host name).
std::string HostId();
std::string HostName();

// Processors this process may use, ascending.
std::vector<int> UsableCores();

// The part of `cores` that rank `rank` of `num_ranks` on this host works with: disjoint ranges, or
// all ranks share (each gets one core, round robin) when there are fewer cores than ranks.
std::vector<int> CoresOfRank(const std::vector<int>& cores, int rank, int num_ranks);

// This host's processors, memory and last-level cache; nothing is measured here. Memory is the
// smaller of the machine's and the control group's limit.
Machine DetectCpuMachine();

// 16 hex digits over the bytes of the running binary: results of different builds are told apart.
std::string BuildHash();

}  // namespace lastflop
