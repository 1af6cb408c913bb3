#include "worker/host_devices.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/campaign_json.h"
#include "common/log.h"
#include "common/numbers.h"
#include "common/share_path.h"
#include "common/status_macros.h"
#include "worker/cpu_host.h"
#include "worker/device_probe.h"
#include "worker/host.h"
#include "worker/host_speeds.h"

namespace lastflop {
namespace {

constexpr int kMostRanksOfACore = 8;

int NumUsableGpus() {
  const auto nvml = Nvml::Create();
  return HasCudaBackend() && nvml.ok() ? static_cast<int>((*nvml)->Visible().size()) : 0;
}

Machine MeasuredCpuMachine() {
  const absl::StatusOr<HostSpeeds> speeds = SpeedsOfHost();
  if (!speeds.ok()) {
    Log(LogSeverity::kWarning, "host_not_measured",
        {{"reason", std::string(speeds.status().message())}});
    return DetectCpuMachine();
  }
  return WithSpeeds(DetectCpuMachine(), *speeds);
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
  for (int gpu = 0; gpu < NumUsableGpus(); ++gpu) {
    devices.push_back(absl::StrCat("cuda:", gpu));
  }
  if (devices.empty()) {
    devices.push_back("cpu:0");
  }
  return devices;
}

absl::Status CheckDevice(const std::string& device, const DeviceCounts& counts) {
  const int num_cpu_workers = kMostRanksOfACore * std::max(counts.num_cores, 1);
  absl::string_view digits = device;
  const bool is_cpu = absl::ConsumePrefix(&digits, "cpu:");
  const bool is_gpu = !is_cpu && absl::ConsumePrefix(&digits, "cuda:");
  const absl::StatusOr<int64_t> index = ParseInteger(digits);
  const int64_t count = is_cpu ? num_cpu_workers : is_gpu ? counts.num_gpus : 0;
  if (index.ok() && *index >= 0 && *index < count) {
    return absl::OkStatus();
  }
  const std::string gpus = counts.num_gpus == 0 ? "no GPU that this build can use"
                           : counts.num_gpus == 1
                               ? "cuda:0"
                               : absl::StrCat("cuda:0 to cuda:", counts.num_gpus - 1);
  return absl::InvalidArgumentError(absl::StrCat(
      "device '", device, "' is not there: this host has cpu:0 to cpu:", num_cpu_workers - 1, " (",
      counts.num_cores, " cores, at most ", kMostRanksOfACore, " ranks on each) and ", gpus));
}

absl::Status CheckDevice(const std::string& device) {
  return CheckDevice(
      device, {.num_cores = static_cast<int>(AllowedCores().size()), .num_gpus = NumUsableGpus()});
}

DeviceIdentity IdentityOf(const std::string& device, const std::vector<GpuIdentity>& gpus,
                          const std::optional<std::string>& visible_devices) {
  absl::string_view digits = device;
  const absl::StatusOr<int64_t> index =
      absl::ConsumePrefix(&digits, "cuda:") ? ParseInteger(digits) : absl::NotFoundError("no GPU");
  const std::vector<VisibleGpu> visible = VisibleGpus(gpus, visible_devices);
  if (!index.ok() || *index < 0 || *index >= static_cast<int64_t>(visible.size())) {
    return {.lock_name = device, .gpu_uuid = ""};
  }
  const VisibleGpu& found = visible[static_cast<size_t>(*index)];
  const std::string& uuid = gpus[static_cast<size_t>(found.gpu)].uuid;
  return {.lock_name = uuid.empty() ? device : uuid,
          .gpu_uuid = found.mig_uuid.empty() ? uuid : ""};
}

DeviceIdentity IdentityOf(const std::string& device) {
  if (!absl::StartsWith(device, "cuda:")) {
    return {.lock_name = device, .gpu_uuid = ""};
  }
  const auto nvml = Nvml::Create();
  return IdentityOf(device, nvml.ok() ? (*nvml)->Identities() : std::vector<GpuIdentity>{},
                    VisibleDevicesVariable());
}

absl::StatusOr<Machine> DescribeCudaDevice(const Nvml& nvml, int index) {
  const std::vector<VisibleGpu> visible = nvml.Visible();
  if (index < 0 || index >= static_cast<int>(visible.size())) {
    const std::optional<std::string> variable = VisibleDevicesVariable();
    return absl::NotFoundError(absl::StrCat(
        "cuda:", index, ": this host has ", nvml.num_gpus(), " GPUs",
        variable.has_value()
            ? absl::StrCat(", and CUDA_VISIBLE_DEVICES=", *variable, " shows ", visible.size())
            : ""));
  }
  const int gpu = visible[static_cast<size_t>(index)].gpu;
  return DescribeGpu(nvml.Describe(gpu), static_cast<int>(visible.size()));
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
  if (!absl::SimpleAtoi(index_text, &index)) {
    return absl::NotFoundError(absl::StrCat("device ", device, " has no index"));
  }
  LASTFLOP_ASSIGN_OR_RETURN(const Machine described, DescribeCudaDevice(*nvml, index));
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
