#include "worker/host_speeds.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/campaign_json.h"
#include "common/host.h"
#include "common/status_macros.h"
#include "kernels/cpu/flop_probe.h"
#include "kernels/cpu/thread_pool.h"
#include "worker/cpu_host.h"
#include "worker/host.h"
#include "worker/read_curve.h"

namespace lastflop {
namespace {

std::string UsersFolder() {
  const std::string folder = absl::StrCat("/tmp/lastflop-", getuid());
  mkdir(folder.c_str(), 0700);
  return folder;
}

// An exclusive lock on a file for as long as it lives; the system ends it with the process.
class FileLock {
 public:
  static absl::StatusOr<FileLock> Acquire(const std::string& path) {
    FileLock lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    int result = -1;
    do {
      result = lock.fd_ < 0 ? -1 : flock(lock.fd_, LOCK_EX);
    } while (lock.fd_ >= 0 && result != 0 && errno == EINTR);
    if (result != 0) {
      return absl::InternalError(absl::StrCat("locking ", path, ": ", std::strerror(errno)));
    }
    return lock;
  }
  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) = delete;
  ~FileLock() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// What the figures hold for: this running host, and the cores that were measured.
std::string Conditions() {
  return absl::StrCat(HostId(), " cores ", absl::StrJoin(AllowedCores(), ","), " build ",
                      BuildHash());
}

// The file is its writer's process id, its conditions, and a machine with the speeds, a line each.
std::optional<HostSpeeds> ReadKept(const std::string& path) {
  std::ifstream in(path);
  std::string pid_text;
  std::string conditions;
  std::ostringstream json;
  if (!std::getline(in, pid_text) || !std::getline(in, conditions) || !(json << in.rdbuf())) {
    return std::nullopt;
  }
  int64_t pid = 0;
  if (!absl::SimpleAtoi(pid_text, &pid) || !IsProcessAlive(pid) || conditions != Conditions()) {
    return std::nullopt;
  }
  absl::StatusOr<Machine> machine = MachineFromJson(json.str());
  if (!machine.ok() || machine->cold_read.empty() ||
      !machine->measured_bf16_tflop_per_s.has_value()) {
    return std::nullopt;
  }
  return HostSpeeds{.cold_read = std::move(machine->cold_read),
                    .tflop_per_s = *machine->measured_bf16_tflop_per_s};
}

// A reader sees the old file or the new one, whole.
void Keep(const std::string& path, const HostSpeeds& speeds) {
  const std::string fresh = absl::StrCat(path, ".", getpid());
  std::ofstream out(fresh);
  out << getpid() << "\n" << Conditions() << "\n" << ToJson(WithSpeeds({}, speeds)) << "\n";
  out.close();
  // Not kept is measured again, and nothing worse.
  if (!out || std::rename(fresh.c_str(), path.c_str()) != 0) {
    unlink(fresh.c_str());
  }
}

absl::StatusOr<HostSpeeds> Measure() {
  LASTFLOP_ASSIGN_OR_RETURN(
      const std::unique_ptr<ThreadPool> pool,
      ThreadPool::Create({.cores = AllowedCores(), .shared_cores = false, .isa = {}}));
  HostSpeeds speeds;
  LASTFLOP_ASSIGN_OR_RETURN(speeds.cold_read, MeasureReadCurve(*pool, LastLevelCacheBytes()));
  constexpr double kFlopPerMicroPerTflopPerS = 1e6;
  speeds.tflop_per_s = MeasureFlopPerMicro(*pool) / kFlopPerMicroPerTflopPerS;
  return speeds;
}

}  // namespace

absl::StatusOr<HostSpeeds> MeasureHostSpeeds() {
  // A pool pins the thread that makes it, and children inherit the affinity of the agent's threads.
  absl::StatusOr<HostSpeeds> speeds = absl::InternalError("not measured");
  std::thread([&speeds] { speeds = Measure(); }).join();
  return speeds;
}

Machine WithSpeeds(Machine machine, const HostSpeeds& speeds) {
  machine.cold_read = speeds.cold_read;
  machine.measured_bf16_tflop_per_s = speeds.tflop_per_s;
  return machine;
}

absl::StatusOr<HostSpeeds> SpeedsOfHost(const std::string& folder) {
  const std::string base = absl::StrCat(folder.empty() ? UsersFolder() : folder, "/speeds");
  LASTFLOP_ASSIGN_OR_RETURN(const FileLock lock, FileLock::Acquire(base + ".lock"));
  if (std::optional<HostSpeeds> kept = ReadKept(base); kept.has_value()) {
    return *std::move(kept);
  }
  absl::StatusOr<HostSpeeds> speeds = MeasureHostSpeeds();
  if (speeds.ok()) {
    Keep(base, *speeds);
  }
  return speeds;
}

}  // namespace lastflop
