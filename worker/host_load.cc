#include "worker/host_load.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

namespace lastflop {
namespace {

constexpr double kLeastSecondsEach = 0.2;

double SecondsPerTick() { return 1.0 / static_cast<double>(sysconf(_SC_CLK_TCK)); }

struct ProcessTimes {
  int64_t parent = 0;
  int64_t ticks = 0;  // User and system.
};

// /proc/PID/stat, fields 4, 14 and 15 (proc(5)); the second, a name, may hold blanks and brackets.
std::optional<ProcessTimes> ReadProcess(const std::string& folder) {
  std::ifstream file(folder + "/stat");
  std::string line;
  if (!std::getline(file, line) || line.rfind(')') == std::string::npos) {
    return std::nullopt;
  }
  ProcessTimes times;
  int64_t user = 0;
  int64_t system = 0;
  const int num_read = std::sscanf(line.c_str() + line.rfind(')') + 1,
                                   " %*c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld",
                                   &times.parent, &user, &system);
  times.ticks = user + system;
  return num_read == 3 ? std::optional(times) : std::nullopt;
}

double OwnSeconds() {
  const std::optional<ProcessTimes> self = ReadProcess("/proc/self");
  int64_t ticks = self.has_value() ? self->ticks : 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (std::isdigit(static_cast<unsigned char>(name[0])) == 0) {
      continue;
    }
    const std::optional<ProcessTimes> process = ReadProcess(entry.path().string());
    if (process.has_value() && process->parent == getpid()) {
      ticks += process->ticks;
    }
  }
  return static_cast<double>(ticks) * SecondsPerTick();
}

}  // namespace

std::optional<CpuSeconds> ReadCpuSeconds() {
  // user nice system idle iowait irq softirq steal; guests are in user (proc(5)).
  std::ifstream file("/proc/stat");
  std::string word;
  double ticks[8] = {};
  file >> word;
  for (double& one : ticks) {
    file >> one;
  }
  if (!file || word != "cpu") {
    return std::nullopt;
  }
  CpuSeconds seconds;
  for (int i = 0; i < 8; ++i) {
    seconds.total += ticks[i] * SecondsPerTick();
  }
  seconds.busy = seconds.total - (ticks[3] + ticks[4]) * SecondsPerTick();
  seconds.own = OwnSeconds();
  return seconds;
}

std::optional<double> ShareElsewhere(const CpuSeconds& before, const CpuSeconds& after,
                                     double own) {
  const double total = after.total - before.total;
  if (total < kLeastSecondsEach * std::max(1U, std::thread::hardware_concurrency())) {
    return std::nullopt;
  }
  return std::clamp((after.busy - before.busy - own) / total, 0.0, 1.0);
}

}  // namespace lastflop
