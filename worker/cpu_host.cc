#include "worker/cpu_host.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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

int64_t LastLevelCacheBytes() {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(absl::StrCat("/sys/devices/system/cpu/cpu0/cache/index", index, "/size"));
    std::string text;
    if (!(file >> text) || text.empty()) {
      continue;
    }
    int64_t unit = 1;
    if (text.back() == 'K' || text.back() == 'M') {
      unit = text.back() == 'K' ? 1024 : 1024 * 1024;
      text.pop_back();
    }
    int64_t size = 0;
    if (absl::SimpleAtoi(text, &size)) {
      largest = std::max(largest, size * unit);
    }
  }
  return largest > 0 ? largest : kUsualCacheBytes;
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
