#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lastflop {

// The cores that this process may run on, ascending.
std::vector<int> AllowedCores();

// The cores of one rank of a gang on this host: an equal part, [rank * c / n, (rank + 1) * c / n)
// of c cores; one that it shares with other ranks when there are fewer cores than ranks.
struct RankCores {
  std::vector<int> cores;
  bool shared = false;
};
RankCores CoresOfRank(const std::vector<int>& cores, int rank, int num_ranks);

// The cores of all ranks in words: "0,1", with several ranks "rank 0: 0,1; rank 1: 2,3".
std::string CoresText(const std::vector<int>& cores, int num_ranks);

// The cores that share the largest cache of `core`, ascending, from sysfs; `core` alone where sysfs
// does not tell.
std::vector<int> CoresOfCache(int core);

// The largest cache of the first core, from sysfs; 32 MiB where sysfs does not tell.
int64_t LastLevelCacheBytes();

// Memory that the system would give now, from /proc/meminfo; 0 when unknown.
int64_t AvailableMemoryBytes();

// "AMD EPYC ...", from /proc/cpuinfo; "unknown CPU" without one.
std::string CpuModelName();

}  // namespace lastflop
