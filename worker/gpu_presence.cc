#include "worker/gpu_presence.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "gpu/nvml.h"
#include "gpu/visible_gpus.h"
#include "worker/device_probe.h"

namespace lastflop {
namespace {

constexpr char kOfTheCpu[] = "every result is of the CPU";

// "nvidia0", and not "nvidiactl" or "nvidia-uvm".
bool IsGpuFile(absl::string_view name) {
  return absl::ConsumePrefix(&name, "nvidia") && !name.empty() &&
         std::all_of(name.begin(), name.end(), absl::ascii_isdigit);
}

template <typename Keep>
int CountEntries(const std::string& folder, const Keep& keep) {
  int count = 0;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    count += keep(entry->path().filename().string()) ? 1 : 0;
  }
  return count;
}

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

GpuPresence PresenceOfGpus() {
  GpuPresence presence;
  presence.visible_devices = VisibleDevicesVariable();
  presence.build_cuda = CudaVersionOfBuild();
  if (const auto nvml = Nvml::Create(); nvml.ok()) {
    presence.num_seen = (*nvml)->num_gpus();
    presence.num_usable = static_cast<int>((*nvml)->Visible().size());
    presence.driver_cuda = (*nvml)->cuda_version();
  } else {
    presence.nvml_error = std::string(nvml.status().message());
  }
  if (presence.num_seen == 0) {
    presence.num_seen = CountGpusBelow("");
  }
  return presence;
}

}  // namespace

std::string UnusedGpus::Text() const {
  return absl::StrCat("this host has ", found, ": ", spoils, "; ", advice);
}

std::optional<UnusedGpus> FindUnusedGpus(const GpuPresence& presence) {
  if (presence.num_seen == 0) {
    return std::nullopt;
  }
  const std::string gpus =
      presence.num_seen == 1 ? "1 NVIDIA GPU" : absl::StrCat(presence.num_seen, " NVIDIA GPUs");
  if (presence.build_cuda == 0) {
    return UnusedGpus{.found = absl::StrCat(gpus, ", and this build has no CUDA backend"),
                      .spoils = kOfTheCpu,
                      .advice = "build with LASTFLOP_CUDA=on where nvcc is"};
  }
  if (presence.num_usable == 0 && presence.nvml_error.empty() &&
      presence.visible_devices.has_value()) {
    return UnusedGpus{.found = absl::StrCat(gpus, ", and CUDA_VISIBLE_DEVICES=",
                                            *presence.visible_devices, " shows none"),
                      .spoils = kOfTheCpu,
                      .advice = "unset it, or name GPUs that are there"};
  }
  if (presence.num_usable == 0) {
    return UnusedGpus{
        .found =
            absl::StrCat(gpus, ", and NVML shows none", presence.nvml_error.empty() ? "" : " (",
                         presence.nvml_error, presence.nvml_error.empty() ? "" : ")"),
        .spoils = kOfTheCpu,
        .advice = "see what nvidia-smi says: load the driver, or give the container its GPUs"};
  }
  if (presence.driver_cuda > 0 && presence.driver_cuda / 1000 < presence.build_cuda / 1000) {
    return UnusedGpus{.found = absl::StrCat(
                          gpus, ", and a driver for CUDA ", VersionText(presence.driver_cuda),
                          " at most, where this build is of ", VersionText(presence.build_cuda)),
                      .spoils = "nothing runs on them",
                      .advice = "update the driver, or build with a toolkit that it knows"};
  }
  return std::nullopt;
}

std::optional<UnusedGpus> FindUnusedGpus() { return FindUnusedGpus(PresenceOfGpus()); }

int CountGpusBelow(const std::string& root) {
  const int of_module = CountEntries(absl::StrCat(root, "/proc/driver/nvidia/gpus"),
                                     [](absl::string_view) { return true; });
  return of_module > 0 ? of_module : CountEntries(absl::StrCat(root, "/dev"), IsGpuFile);
}

}  // namespace lastflop
