#include "worker/gpu_findings.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/units.h"
#include "worker/device_probe.h"
#include "worker/gpu_presence.h"
#include "worker/host_devices.h"

namespace lastflop {
namespace {

std::string OnOff(const std::optional<bool>& value) {
  return !value.has_value() ? "not known" : *value ? "on" : "off";
}

Finding Mode(const std::string& subject, const std::optional<bool>& value, bool wanted,
             const std::string& spoils) {
  const bool is_bad = value.has_value() && *value != wanted;
  return {.severity = is_bad ? "warning" : "ok",
          .subject = subject,
          .found = OnOff(value),
          .spoils = is_bad ? spoils : ""};
}

// A GPU alone has no transfers that could be slow, but its machine is taken for one of its kind.
Finding NvLink(const std::string& name, const GpuDescription& gpu, int num_gpus) {
  if (gpu.nvlinks_up > 0) {
    return {.severity = "ok",
            .subject = name + " nvlink",
            .found = absl::StrCat(gpu.nvlinks_up, " links up"),
            .spoils = ""};
  }
  return {.severity = num_gpus > 1 ? "warning" : "ok",
          .subject = name + " nvlink",
          .found = "none seen",
          .spoils = num_gpus > 1
                        ? "collectives with this GPU run over PCIe: what they cost, and with it "
                          "what parallelism and all-reduces gain, does not hold for NVLink"
                        : "the cost model takes this machine's collectives for those of PCIe"};
}

Finding Pcie(const std::string& name, const GpuDescription& gpu) {
  if (!gpu.pcie_generation_max.has_value() || !gpu.pcie_width_max.has_value()) {
    return {.severity = "ok", .subject = name + " pcie", .found = "not known", .spoils = ""};
  }
  const bool is_narrow = gpu.pcie_width.value_or(0) < *gpu.pcie_width_max;
  return {.severity = is_narrow ? "warning" : "ok",
          .subject = name + " pcie",
          .found = absl::StrFormat("generation %d of %d, x%d of x%d",
                                   gpu.pcie_generation.value_or(0), *gpu.pcie_generation_max,
                                   gpu.pcie_width.value_or(0), *gpu.pcie_width_max),
          .spoils = is_narrow ? "transfers between GPUs that have no NVLink run at a part of the "
                                "slot's rate"
                              : ""};
}

std::vector<Finding> Measured(int index, const GpuDescription& gpu, int num_gpus) {
  const std::string name = absl::StrCat("cuda:", index);
  std::vector<Finding> findings;
  const auto machine = ProbeCudaDevice(index, DescribeGpu(gpu, num_gpus));
  if (!machine.ok()) {
    return {{.severity = "problem",
             .subject = name + " run",
             .found = std::string(machine.status().message()),
             .spoils = "nothing can be measured on it"}};
  }
  std::string curve =
      absl::StrFormat("L2 %.0f MiB", static_cast<double>(machine->l2_bytes) / 1024 / 1024);
  for (const ReadCurvePoint& point : machine->cold_read) {
    absl::StrAppend(&curve, absl::StrFormat("; %.0f MB %.1f us (%.2f TB/s)", point.bytes * 1e-6,
                                            point.us, point.bytes / point.us * 1e-6));
  }
  findings.push_back(
      {.severity = "ok", .subject = name + " cold read", .found = curve, .spoils = ""});
  const auto product = ProbeProductTflopPerS(index);
  findings.push_back({.severity = product.ok() ? "ok" : "problem",
                      .subject = name + " bf16 product",
                      .found = product.ok() ? absl::StrFormat("%.0f TFLOP/s at 8192^3", *product)
                                            : std::string(product.status().message()),
                      .spoils = product.ok() ? "" : "dense products have no library"});
  return findings;
}

}  // namespace

std::vector<Finding> FindingsOfGpu(int index, const GpuDescription& gpu, const GpuTelemetry& now,
                                   int num_gpus) {
  const std::string name = absl::StrCat("cuda:", index);
  std::vector<Finding> findings;
  findings.push_back({.severity = "ok",
                      .subject = name,
                      .found = absl::StrFormat("%s, %s, %.1f GiB, sm_%d%d", gpu.name, gpu.uuid,
                                               static_cast<double>(gpu.memory_bytes) / kBytesPerGib,
                                               gpu.compute_major, gpu.compute_minor),
                      .spoils = ""});
  findings.push_back(NvLink(name, gpu, num_gpus));
  findings.push_back(Pcie(name, gpu));
  findings.push_back(Mode(name + " mig", gpu.mig, false,
                          "the device is a part of a GPU: floors and peaks of the whole do not "
                          "hold"));
  findings.push_back(Mode(name + " persistence", gpu.persistence, true,
                          "the driver unloads between programs: every launch starts with seconds "
                          "of set-up"));
  findings.push_back(Mode(name + " ecc", gpu.ecc, true,
                          "memory runs faster than where ECC is on, and errors go unseen"));
  const bool throttled = now.is_throttled();
  findings.push_back({.severity = throttled ? "warning" : "ok",
                      .subject = name + " throttle",
                      .found = now.ThrottleText(),
                      .spoils = throttled ? "pairs are dropped or measured at low clocks" : ""});
  const bool has_errors = now.ecc_errors.value_or(0) > 0;
  findings.push_back({.severity = has_errors ? "problem" : "ok",
                      .subject = name + " memory errors",
                      .found = now.ecc_errors.has_value()
                                   ? absl::StrCat(*now.ecc_errors, " uncorrected")
                                   : "not known",
                      .spoils = has_errors ? "results may be wrong: replace the GPU" : ""});
  return findings;
}

std::vector<Finding> FindingsOfVisibility(const std::vector<GpuDescription>& gpus,
                                          const std::vector<VisibleGpu>& visible,
                                          const std::optional<std::string>& visible_devices,
                                          const std::optional<std::string>& device_order) {
  std::vector<Finding> findings;
  if (!visible_devices.has_value()) {
    return findings;
  }
  const std::string variable = absl::StrCat("CUDA_VISIBLE_DEVICES=", *visible_devices);
  for (size_t i = 0; i < gpus.size(); ++i) {
    const bool is_shown = std::any_of(visible.begin(), visible.end(), [&](const VisibleGpu& one) {
      return one.gpu == static_cast<int>(i);
    });
    if (!is_shown) {
      findings.push_back({.severity = "ok",
                          .subject = gpus[i].uuid,
                          .found = absl::StrCat(gpus[i].name, ", hidden by ", variable),
                          .spoils = "nothing is measured on it"});
    }
  }
  const bool are_alike = std::all_of(gpus.begin(), gpus.end(), [&](const GpuDescription& gpu) {
    return gpu.name == gpus.front().name;
  });
  const bool has_numbers =
      !absl::StartsWith(*visible_devices, "GPU-") && !absl::StartsWith(*visible_devices, "MIG-");
  if (!are_alike && has_numbers && device_order != "PCI_BUS_ID") {
    findings.push_back({.severity = "warning",
                        .subject = "gpu order",
                        .found = absl::StrCat(variable, " is counted by PCI bus"),
                        .spoils = "these GPUs differ, and other programs count the fastest first: "
                                  "they may mean another one; name GPUs by UUID, or set "
                                  "CUDA_DEVICE_ORDER=PCI_BUS_ID for all"});
  }
  return findings;
}

std::vector<Finding> ExamineGpus() {
  std::vector<Finding> findings;
  if (const std::optional<UnusedGpus> unused = FindUnusedGpus(); unused.has_value()) {
    findings.push_back({.severity = "problem",
                        .subject = "gpu",
                        .found = unused->found,
                        .spoils = absl::StrCat(unused->spoils, ": ", unused->advice)});
  }
  const auto nvml = Nvml::Create();
  if (!nvml.ok() || (*nvml)->num_gpus() == 0) {
    if (findings.empty()) {
      findings.push_back({.severity = "ok", .subject = "gpu", .found = "none", .spoils = ""});
    }
    return findings;
  }
  findings.push_back(
      {.severity = "ok", .subject = "driver", .found = (*nvml)->driver_version(), .spoils = ""});
  std::vector<GpuDescription> gpus;
  for (int gpu = 0; gpu < (*nvml)->num_gpus(); ++gpu) {
    gpus.push_back((*nvml)->Describe(gpu));
  }
  const std::vector<VisibleGpu> visible = (*nvml)->Visible();
  const char* const order = std::getenv("CUDA_DEVICE_ORDER");
  for (Finding& finding :
       FindingsOfVisibility(gpus, visible, VisibleDevicesVariable(),
                            order == nullptr ? std::nullopt : std::optional<std::string>(order))) {
    findings.push_back(std::move(finding));
  }
  const int num_visible = static_cast<int>(visible.size());
  for (int index = 0; index < num_visible; ++index) {
    const int gpu = visible[static_cast<size_t>(index)].gpu;
    const GpuDescription& description = gpus[static_cast<size_t>(gpu)];
    for (Finding& finding : FindingsOfGpu(index, description, (*nvml)->Read(gpu), num_visible)) {
      findings.push_back(std::move(finding));
    }
    if (HasCudaBackend()) {
      for (Finding& finding : Measured(index, description, num_visible)) {
        findings.push_back(std::move(finding));
      }
    }
  }
  if (HasCudaBackend() && num_visible > 1) {
    const auto peers = GpusWithoutPeerAccess();
    const bool all = peers.ok() && peers->empty();
    findings.push_back({.severity = all ? "ok" : "warning",
                        .subject = "peer access",
                        .found = !peers.ok() ? std::string(peers.status().message())
                                 : all       ? "every GPU reaches every other"
                                       : absl::StrCat("missing: ", absl::StrJoin(*peers, ", ")),
                        .spoils = all ? "" : "collectives between them go through host memory"});
  }
  return findings;
}

}  // namespace lastflop
