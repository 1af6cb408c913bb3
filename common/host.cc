#include "common/host.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace lastflop {

std::string HostName() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0) {
    return "localhost";
  }
  return name;
}

std::string HostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot_id;
  std::getline(file, boot_id);
  return absl::StrCat(boot_id, "/", HostName());
}

bool IsProcessAlive(int64_t pid) {
  if (pid <= 0 || (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)) {
    return false;
  }
  // "PID (NAME) STATE ...": the name may hold spaces and parentheses, so the last one counts.
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos || stat.compare(name_end, 3, ") Z") != 0;
}

}  // namespace lastflop
