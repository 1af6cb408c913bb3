#include "worker/host.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "worker/cpu_host.h"

namespace lastflop {
namespace {

std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream out;
  out << in.rdbuf();
  return std::string(absl::StripAsciiWhitespace(out.str()));
}

std::string CpuInfo(absl::string_view key) {
  const std::string text = ReadFile("/proc/cpuinfo");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == key) {
      return std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return "";
}

bool HasFlag(absl::string_view flags, absl::string_view flag) {
  const std::vector<absl::string_view> words = absl::StrSplit(flags, ' ');
  return std::find(words.begin(), words.end(), flag) != words.end();
}

std::optional<int64_t> MemTotalBytes() {
  const std::string text = ReadFile("/proc/meminfo");
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::ConsumePrefix(&line, "MemTotal:")) {
      int64_t kib = 0;
      absl::ConsumeSuffix(&line, "kB");
      if (absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) {
        return kib * 1024;
      }
    }
  }
  return std::nullopt;
}

std::optional<int64_t> ControlGroupLimitBytes() {
  for (const char* path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    int64_t bytes = 0;
    if (absl::SimpleAtoi(ReadFile(path), &bytes) && bytes > 0) {
      return bytes;
    }
  }
  return std::nullopt;
}

std::string VectorLevel(absl::string_view flags) {
  if (HasFlag(flags, "avx512f") && HasFlag(flags, "avx512bw")) {
    return "avx512";
  }
  return HasFlag(flags, "avx2") && HasFlag(flags, "fma") ? "avx2" : "scalar";
}

}  // namespace

Machine DetectCpuMachine() {
  const std::string flags = CpuInfo("flags");
  const int64_t num_cores = static_cast<int64_t>(AllowedCores().size());
  Machine machine;
  machine.name = "detected";
  machine.backend = "cpu";
  machine.device_name = CpuModelName();
  machine.architecture = absl::StrCat("x86_64 ", VectorLevel(flags));
  machine.num_devices = num_cores;
  machine.num_cores = num_cores;
  machine.memory_bytes = MemTotalBytes().value_or(0);
  if (const auto limit = ControlGroupLimitBytes(); limit.has_value()) {
    machine.memory_bytes = std::min(machine.memory_bytes, *limit);
  }
  machine.l2_bytes = LastLevelCacheBytes();
  machine.link = "shared_memory";
  machine.source = "detected";
  return machine;
}

std::string BuildHash() {
  static const std::string hash = [] {
    std::ifstream in("/proc/self/exe", std::ios::binary);
    // FNV-1a, 64 bit.
    uint64_t value = 0xCBF29CE484222325ull;
    char block[65536];
    while (in.read(block, sizeof(block)) || in.gcount() > 0) {
      for (std::streamsize i = 0; i < in.gcount(); ++i) {
        value = (value ^ static_cast<unsigned char>(block[i])) * 0x100000001B3ull;
      }
    }
    return absl::StrFormat("%016x", value);
  }();
  return hash;
}

}  // namespace lastflop
