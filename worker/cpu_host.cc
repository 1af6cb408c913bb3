#include "worker/cpu_host.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace lastflop {
namespace {

constexpr int64_t kUsualCacheBytes = int64_t{32} << 20;

// The rest of the first line of `path` that begins with `name`, without blanks; "" without one.
std::string FieldOf(const char* path, const std::string& name) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind(name, 0) == 0) {
      const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
      return parts.size() == 2 ? std::string(absl::StripAsciiWhitespace(parts[1])) : "";
    }
  }
  return "";
}

struct CacheOfCore {
  int64_t bytes = 0;
  std::string cores;  // "0-7,64-71"
};

CacheOfCore LargestCache(int core) {
  CacheOfCore largest;
  for (int index = 0; index < 8; ++index) {
    const std::string folder =
        absl::StrCat("/sys/devices/system/cpu/cpu", core, "/cache/index", index);
    std::ifstream size_file(folder + "/size");
    std::string text;
    if (!(size_file >> text) || text.empty()) {
      continue;
    }
    int64_t unit = 1;
    if (text.back() == 'K' || text.back() == 'M') {
      unit = text.back() == 'K' ? 1024 : 1024 * 1024;
      text.pop_back();
    }
    int64_t size = 0;
    if (absl::SimpleAtoi(text, &size) && size * unit > largest.bytes) {
      largest = {.bytes = size * unit, .cores = ""};
      std::ifstream(folder + "/shared_cpu_list") >> largest.cores;
    }
  }
  return largest;
}

// "0-2,5" as 0 1 2 5; what is no number is left out.
std::vector<int> CoresOfList(const std::string& list) {
  std::vector<int> cores;
  for (const absl::string_view range : absl::StrSplit(list, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int first = 0;
    int last = 0;
    if (absl::SimpleAtoi(ends.front(), &first) && absl::SimpleAtoi(ends.back(), &last)) {
      for (int core = first; core <= last && last < CPU_SETSIZE; ++core) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

}  // namespace

std::vector<int> AllowedCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) {
        cores.push_back(core);
      }
    }
  }
  return cores;
}

RankCores CoresOfRank(const std::vector<int>& cores, int rank, int num_ranks) {
  const auto count = static_cast<int>(cores.size());
  if (count < num_ranks) {
    return {.cores = {cores[static_cast<size_t>(rank % count)]}, .shared = true};
  }
  return {.cores = {cores.begin() + rank * count / num_ranks,
                    cores.begin() + (rank + 1) * count / num_ranks},
          .shared = false};
}

std::string CoresText(const std::vector<int>& cores, int num_ranks) {
  std::vector<std::string> parts;
  for (int rank = 0; rank < num_ranks; ++rank) {
    const std::string own = absl::StrJoin(CoresOfRank(cores, rank, num_ranks).cores, ",");
    parts.push_back(num_ranks == 1 ? own : absl::StrCat("rank ", rank, ": ", own));
  }
  return absl::StrJoin(parts, "; ");
}

int64_t LastLevelCacheBytes() {
  const int64_t bytes = LargestCache(0).bytes;
  return bytes > 0 ? bytes : kUsualCacheBytes;
}

std::vector<int> CoresOfCache(int core) {
  std::vector<int> cores = CoresOfList(LargestCache(core).cores);
  if (std::find(cores.begin(), cores.end(), core) == cores.end()) {
    cores = {core};
  }
  return cores;
}

int64_t AvailableMemoryBytes() {
  const std::string field = FieldOf("/proc/meminfo", "MemAvailable");
  const std::vector<std::string> words = absl::StrSplit(field, ' ');
  int64_t kib = 0;
  return absl::SimpleAtoi(words.front(), &kib) ? kib * 1024 : 0;
}

std::string CpuModelName() {
  const std::string name = FieldOf("/proc/cpuinfo", "model name");
  return name.empty() ? "unknown CPU" : name;
}

}  // namespace lastflop
