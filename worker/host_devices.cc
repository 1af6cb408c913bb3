#include "worker/host_devices.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/campaign_json.h"
#include "common/log.h"
#include "common/share_path.h"
#include "common/status_macros.h"
#include "worker/device_probe.h"
#include "worker/host.h"
#include "worker/host_read_curve.h"

namespace lastflop {
namespace {

Machine MeasuredCpuMachine() {
  Machine machine = DetectCpuMachine();
  absl::StatusOr<std::vector<ReadCurvePoint>> curve = ReadCurveOfHost();
  if (curve.ok()) {
    machine.cold_read = *std::move(curve);
  } else {
    Log(LogSeverity::kWarning, "read_curve_not_measured",
        {{"reason", std::string(curve.status().message())}});
  }
  return machine;
}

// What a worker binary prints of the device, from a process of its own.
absl::StatusOr<std::string> AskOwnProcess(const std::string& device) {
  LASTFLOP_ASSIGN_OR_RETURN(const std::string directory, BinaryDirectory());
  const std::string command =
      absl::StrCat("'", directory, "/lastflop-worker' --print machine --device ", device);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) {
    return absl::InternalError(absl::StrCat("cannot start ", command));
  }
  std::string text;
  char block[4096];
  while (const size_t count = fread(block, 1, sizeof(block), pipe.get())) {
    text.append(block, count);
  }
  return text;
}

}  // namespace

std::vector<std::string> HostDevices() {
  std::vector<std::string> devices;
  if (const auto nvml = Nvml::Create(); HasCudaBackend() && nvml.ok()) {
    for (int gpu = 0; gpu < (*nvml)->num_gpus(); ++gpu) {
      devices.push_back(absl::StrCat("cuda:", gpu));
    }
  }
  if (devices.empty()) {
    devices.push_back("cpu:0");
  }
  return devices;
}

Machine DescribeGpu(const GpuDescription& gpu, int num_gpus) {
  Machine machine;
  machine.name = "detected";
  machine.backend = "cuda";
  machine.device_name = gpu.name;
  machine.architecture = absl::StrFormat("sm_%d%d%s", gpu.compute_major, gpu.compute_minor,
                                         gpu.compute_major == 9 ? "a" : "");
  machine.num_devices = num_gpus;
  machine.num_cores = DetectCpuMachine().num_cores;
  machine.memory_bytes = gpu.memory_bytes;
  machine.link = gpu.nvlinks_up > 0 ? "nvlink" : "pcie";
  machine.source = "detected";
  return machine;
}

absl::StatusOr<Machine> MachineOfDevice(const std::string& device) {
  absl::string_view index_text = device;
  int index = 0;
  if (!absl::ConsumePrefix(&index_text, "cuda:")) {
    return MeasuredCpuMachine();
  }
  LASTFLOP_ASSIGN_OR_RETURN(const std::unique_ptr<Nvml> nvml, Nvml::Create());
  if (!absl::SimpleAtoi(index_text, &index) || index < 0 || index >= nvml->num_gpus()) {
    return absl::NotFoundError(
        absl::StrCat(device, ": this host shows ", nvml->num_gpus(), " GPUs"));
  }
  const Machine described = DescribeGpu(nvml->Describe(index), nvml->num_gpus());
  const absl::StatusOr<std::string> text = AskOwnProcess(device);
  const absl::StatusOr<Machine> measured =
      text.ok() ? MachineFromJson(*text) : absl::StatusOr<Machine>(text.status());
  if (!measured.ok()) {
    Log(LogSeverity::kWarning, "device_not_probed",
        {{"device", device}, {"reason", std::string(measured.status().message())}});
    return described;
  }
  return *measured;
}

}  // namespace lastflop
