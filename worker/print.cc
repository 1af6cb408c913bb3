#include "worker/print.h"

#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/campaign_json.h"
#include "common/exit_codes.h"
#include "common/host.h"
#include "common/machine.h"
#include "kernels/kernel_table.h"
#include "worker/device_probe.h"
#include "worker/doctor.h"
#include "worker/gpu_presence.h"
#include "worker/host.h"
#include "worker/host_devices.h"
#include "worker/host_speeds.h"
#include "worker/measuring_hold.h"

namespace lastflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kCalibrationWait(60);

int Failed(const absl::Status& status) {
  std::cerr << "lastflop-worker: " << status.message() << "\n";
  return ExitCodeOf(status);
}

int PrintDevices() {
  const std::optional<UnusedGpus> unused = FindUnusedGpus();
  std::cout << Json{{"devices", HostDevices()},
                    {"cuda_backend", HasCudaBackend()},
                    {"unused_gpus", unused.has_value() ? unused->Text() : ""}}
                   .dump()
            << "\n";
  return kExitFinished;
}

// In this process, which is no worker: it may touch the GPU.
int PrintCudaMachine(int index) {
  const auto nvml = Nvml::Create();
  if (!nvml.ok()) {
    return Failed(nvml.status());
  }
  const absl::StatusOr<Machine> described = DescribeCudaDevice(**nvml, index);
  const absl::StatusOr<Machine> machine =
      described.ok() ? ProbeCudaDevice(index, *described) : described.status();
  if (!machine.ok()) {
    return Failed(machine.status());
  }
  std::cout << ToJson(*machine) << "\n";
  return kExitFinished;
}

int PrintMachine(const std::string& device) {
  if (const absl::Status status = CheckDevice(device); !device.empty() && !status.ok()) {
    return Failed(status);
  }
  absl::string_view index = device;
  int gpu = -1;
  if (absl::ConsumePrefix(&index, "cuda:") && absl::SimpleAtoi(index, &gpu)) {
    return PrintCudaMachine(gpu);
  }
  const absl::StatusOr<HostSpeeds> speeds = MeasureHostSpeeds();
  if (!speeds.ok()) {
    return Failed(speeds.status());
  }
  std::cout << ToJson(WithSpeeds(DetectCpuMachine(), *speeds)) << "\n";
  return kExitFinished;
}

// The machine, while nothing of this user measures on the device.
int PrintCalibration(const std::string& device) {
  const absl::StatusOr<MeasuringHold> hold =
      HoldToMeasure({.device = device, .timeout = kCalibrationWait});
  return hold.ok() ? PrintMachine(device) : Failed(hold.status());
}

int PrintKernels() {
  Json rows = Json::array();
  for (const KernelInfo& kernel : KernelTable()) {
    rows.push_back({{"name", std::string(kernel.name)},
                    {"backends", HasCudaBackend() ? std::string(kernel.backends) : "cpu"},
                    {"ops", std::string(kernel.ops)},
                    {"formats", std::string(kernel.formats)},
                    {"config", std::string(kernel.config_keys)},
                    {"summary", std::string(kernel.summary)}});
  }
  std::cout << Json{{"kernels", rows}}.dump(2) << "\n";
  return kExitFinished;
}

int PrintDoctor() {
  Json rows = Json::array();
  for (const Finding& finding : ExamineHost()) {
    rows.push_back({{"severity", finding.severity},
                    {"subject", finding.subject},
                    {"found", finding.found},
                    {"spoils", finding.spoils}});
  }
  std::cout << Json{{"host", HostName()}, {"findings", rows}}.dump(2) << "\n";
  return kExitFinished;
}

}  // namespace

int PrintAboutHost(const std::string& what, const std::string& device) {
  if (what == "devices") {
    return PrintDevices();
  }
  if (what == "machine") {
    return PrintMachine(device);
  }
  if (what == "calibration") {
    return PrintCalibration(device);
  }
  if (what == "kernels") {
    return PrintKernels();
  }
  if (what == "doctor") {
    return PrintDoctor();
  }
  std::cerr << "lastflop-worker: --print " << what
            << ": devices, machine, calibration, kernels or doctor\n";
  return kExitUsage;
}

}  // namespace lastflop
