#include "worker/doctor.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/machine.h"
#include "common/units.h"
#include "worker/gpu_findings.h"
#include "worker/host.h"

namespace lastflop {
namespace {

std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

Finding Cores(const Machine& machine) {
  const bool few = machine.num_cores < 2;
  return {
      .severity = few ? "warning" : "ok",
      .subject = "cores",
      .found = absl::StrCat(machine.num_cores, " usable, ", machine.device_name),
      .spoils = few ? "ranks share the one core: their collectives wait for the scheduler" : ""};
}

Finding VectorUnits(const Machine& machine) {
  const bool scalar = absl::StrContains(machine.architecture, "scalar");
  return {.severity = scalar ? "warning" : "ok",
          .subject = "vector units",
          .found = machine.architecture,
          .spoils = scalar ? "kernels run their portable form: compute-bound points are slow" : ""};
}

Finding Memory(const Machine& machine) {
  return {.severity = "ok",
          .subject = "memory",
          .found = absl::StrFormat("%.1f GiB, last-level cache %.1f MiB",
                                   static_cast<double>(machine.memory_bytes) / kBytesPerGib,
                                   static_cast<double>(machine.l2_bytes) / kBytesPerGib * 1024.0),
          .spoils = ""};
}

Finding Load(const Machine& machine) {
  double load[1] = {0};
  const bool known = getloadavg(load, 1) == 1;
  const bool busy = known && load[0] > 0.5 * static_cast<double>(machine.num_cores);
  return {.severity = busy ? "warning" : "ok",
          .subject = "load",
          .found = known ? absl::StrFormat("%.2f over the last minute", load[0]) : "not known",
          .spoils = busy ? "another program is at work: noise grows and small effects drown" : ""};
}

Finding Governor() {
  const std::string governor = FirstLine("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  const bool slow = governor == "powersave" || governor == "ondemand";
  return {.severity = slow ? "warning" : "ok",
          .subject = "frequency governor",
          .found = governor.empty() ? "not visible" : governor,
          .spoils = slow ? "the clock follows the load: short steps are timed at low clocks" : ""};
}

Finding Virtualization() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  bool is_guest = false;
  while (std::getline(in, line)) {
    is_guest =
        is_guest || (absl::StartsWith(line, "flags") && absl::StrContains(line, "hypervisor"));
  }
  return {.severity = is_guest ? "warning" : "ok",
          .subject = "virtualization",
          .found = is_guest ? "a virtual machine" : "none seen",
          .spoils = is_guest ? "neighbours of the host are invisible here: watch the noise and the "
                               "baseline's drift"
                             : ""};
}

}  // namespace

std::vector<Finding> ExamineHost() {
  const Machine machine = DetectCpuMachine();
  std::vector<Finding> findings = {Cores(machine), VectorUnits(machine), Memory(machine),
                                   Load(machine),  Governor(),           Virtualization()};
  for (Finding& finding : ExamineGpus()) {
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace lastflop
