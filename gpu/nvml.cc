#include "gpu/nvml.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "gpu/shared_library.h"

// The toolkit's wheels have no nvml.h: what is used of NVML's documented C interface is declared
// here, with its numbers.
namespace lastflop {
namespace {

using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kClockSm = 1;  // nvmlClockType_t
constexpr unsigned kClockMemory = 2;
constexpr unsigned kTemperatureGpu = 0;
constexpr unsigned kEccUncorrected = 1;  // nvmlMemoryErrorType_t
constexpr unsigned kEccVolatile = 0;     // nvmlEccCounterType_t
constexpr unsigned kMaxNvLinks = 18;
constexpr unsigned kEnabled = 1;

// nvmlClocksEventReason*
constexpr uint64_t kReasonPowerCap = 0x4;
constexpr uint64_t kReasonHardware = 0x8;
constexpr uint64_t kReasonSoftwareThermal = 0x20;
constexpr uint64_t kReasonHardwareThermal = 0x40;
constexpr uint64_t kReasonPowerBrake = 0x80;
constexpr uint64_t kSlowing = kReasonPowerCap | kReasonHardware | kReasonSoftwareThermal |
                              kReasonHardwareThermal | kReasonPowerBrake;

struct Memory {
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

// CUDA has no prefix, and "GPU-" is written before what it says of a part as well.
absl::string_view DigitsOf(absl::string_view uuid) {
  return absl::StripPrefix(absl::StripPrefix(uuid, "GPU-"), "MIG-");
}

struct PciInfo {  // nvmlPciInfo_t, version 3
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_subsystem_id;
  char bus_id[32];
};

}  // namespace

struct Nvml::Api {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*get_count)(unsigned*) = nullptr;
  int (*get_handle)(unsigned, Device*) = nullptr;
  int (*get_driver)(char*, unsigned) = nullptr;
  int (*get_cuda_version)(int*) = nullptr;
  int (*get_name)(Device, char*, unsigned) = nullptr;
  int (*get_uuid)(Device, char*, unsigned) = nullptr;
  int (*get_memory)(Device, Memory*) = nullptr;
  int (*get_pci)(Device, PciInfo*) = nullptr;
  int (*get_clock)(Device, unsigned, unsigned*) = nullptr;
  int (*get_power)(Device, unsigned*) = nullptr;
  int (*get_power_limit)(Device, unsigned*) = nullptr;
  int (*get_temperature)(Device, unsigned, unsigned*) = nullptr;
  int (*get_reasons)(Device, unsigned long long*) = nullptr;
  int (*get_ecc_errors)(Device, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*get_pcie_generation)(Device, unsigned*) = nullptr;
  int (*get_pcie_generation_max)(Device, unsigned*) = nullptr;
  int (*get_pcie_width)(Device, unsigned*) = nullptr;
  int (*get_pcie_width_max)(Device, unsigned*) = nullptr;
  int (*get_mig)(Device, unsigned*, unsigned*) = nullptr;
  int (*get_persistence)(Device, unsigned*) = nullptr;
  int (*get_ecc)(Device, unsigned*, unsigned*) = nullptr;
  int (*get_nvlink)(Device, unsigned, unsigned*) = nullptr;
  int (*get_compute)(Device, int*, int*) = nullptr;
  int (*get_max_parts)(Device, unsigned*) = nullptr;
  int (*get_part)(Device, unsigned, Device*) = nullptr;

  absl::Status LoadFrom(const SharedLibrary& library) {
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlInit_v2", init));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlShutdown", shutdown));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetCount_v2", get_count));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetHandleByIndex_v2", get_handle));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlSystemGetDriverVersion", get_driver));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetName", get_name));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetUUID", get_uuid));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetMemoryInfo", get_memory));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetPciInfo_v3", get_pci));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetClockInfo", get_clock));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetPowerUsage", get_power));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetEnforcedPowerLimit", get_power_limit));
    LASTFLOP_RETURN_IF_ERROR(library.Load("nvmlDeviceGetTemperature", get_temperature));
    // Older drivers have it under its older name, with the same bits.
    if (!library.Load("nvmlDeviceGetCurrentClocksEventReasons", get_reasons).ok()) {
      library.Load("nvmlDeviceGetCurrentClocksThrottleReasons", get_reasons).IgnoreError();
    }
    library.Load("nvmlSystemGetCudaDriverVersion_v2", get_cuda_version).IgnoreError();
    library.Load("nvmlDeviceGetTotalEccErrors", get_ecc_errors).IgnoreError();
    library.Load("nvmlDeviceGetCurrPcieLinkGeneration", get_pcie_generation).IgnoreError();
    library.Load("nvmlDeviceGetMaxPcieLinkGeneration", get_pcie_generation_max).IgnoreError();
    library.Load("nvmlDeviceGetCurrPcieLinkWidth", get_pcie_width).IgnoreError();
    library.Load("nvmlDeviceGetMaxPcieLinkWidth", get_pcie_width_max).IgnoreError();
    library.Load("nvmlDeviceGetMigMode", get_mig).IgnoreError();
    library.Load("nvmlDeviceGetPersistenceMode", get_persistence).IgnoreError();
    library.Load("nvmlDeviceGetEccMode", get_ecc).IgnoreError();
    library.Load("nvmlDeviceGetNvLinkState", get_nvlink).IgnoreError();
    library.Load("nvmlDeviceGetMaxMigDeviceCount", get_max_parts).IgnoreError();
    library.Load("nvmlDeviceGetMigDeviceHandleByIndex", get_part).IgnoreError();
    return library.Load("nvmlDeviceGetCudaComputeCapability", get_compute);
  }
};

bool GpuTelemetry::is_throttled() const { return (throttle_reasons.value_or(0) & kSlowing) != 0; }

std::string GpuTelemetry::ThrottleText() const {
  if (!throttle_reasons.has_value()) {
    return "n/a";
  }
  std::vector<std::string> words;
  const auto add = [&](uint64_t bits, const char* word) {
    if ((*throttle_reasons & bits) != 0) {
      words.push_back(word);
    }
  };
  add(kReasonPowerCap, "power cap");
  add(kReasonSoftwareThermal | kReasonHardwareThermal, "thermal");
  add(kReasonPowerBrake, "power brake");
  add(kReasonHardware, "hardware slowdown");
  return words.empty() ? "none" : absl::StrJoin(words, ", ");
}

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}

Nvml::~Nvml() { api_->shutdown(); }

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::Create() {
  LASTFLOP_ASSIGN_OR_RETURN(const SharedLibrary library,
                            SharedLibrary::Open("NVML", {"libnvidia-ml.so.1"}));
  auto api = std::make_unique<Api>();
  LASTFLOP_RETURN_IF_ERROR(api->LoadFrom(library));
  if (const int status = api->init(); status != kSuccess) {
    return absl::NotFoundError(absl::StrCat("NVML does not start: status ", status));
  }
  std::unique_ptr<Nvml> made(new Nvml(std::move(api)));
  char driver[96] = {};
  if (made->api_->get_driver(driver, sizeof(driver)) == kSuccess) {
    made->driver_version_ = driver;
  }
  if (made->api_->get_cuda_version != nullptr &&
      made->api_->get_cuda_version(&made->cuda_version_) != kSuccess) {
    made->cuda_version_ = 0;
  }
  unsigned count = 0;
  made->api_->get_count(&count);
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (made->api_->get_handle(i, &device) == kSuccess) {
      made->devices_.push_back(device);
    }
  }
  return made;
}

GpuDescription Nvml::Describe(int gpu) const {
  const Device device = devices_[static_cast<size_t>(gpu)];
  GpuDescription description;
  char text[96] = {};
  if (api_->get_name(device, text, sizeof(text)) == kSuccess) {
    description.name = text;
  }
  GpuIdentity identity = IdentityOf(device);
  description.uuid = std::move(identity.uuid);
  description.mig_uuids = std::move(identity.mig_uuids);
  Memory memory{};
  if (api_->get_memory(device, &memory) == kSuccess) {
    description.memory_bytes = static_cast<int64_t>(memory.total);
  }
  PciInfo pci{};
  if (api_->get_pci(device, &pci) == kSuccess) {
    description.pci_bus_id = pci.bus_id;
  }
  const auto read = [device](int (*get)(Device, unsigned*)) -> std::optional<unsigned> {
    unsigned value = 0;
    return get != nullptr && get(device, &value) == kSuccess ? std::optional(value) : std::nullopt;
  };
  description.pcie_generation = read(api_->get_pcie_generation);
  description.pcie_generation_max = read(api_->get_pcie_generation_max);
  description.pcie_width = read(api_->get_pcie_width);
  description.pcie_width_max = read(api_->get_pcie_width_max);
  if (const auto mode = read(api_->get_persistence); mode.has_value()) {
    description.persistence = *mode == kEnabled;
  }
  const auto read_mode = [device](int (*get)(Device, unsigned*, unsigned*)) -> std::optional<bool> {
    unsigned current = 0;
    unsigned pending = 0;
    return get != nullptr && get(device, &current, &pending) == kSuccess
               ? std::optional(current == kEnabled)
               : std::nullopt;
  };
  description.mig = read_mode(api_->get_mig);
  description.ecc = read_mode(api_->get_ecc);
  for (unsigned link = 0; api_->get_nvlink != nullptr && link < kMaxNvLinks; ++link) {
    unsigned active = 0;
    if (api_->get_nvlink(device, link, &active) == kSuccess && active == kEnabled) {
      ++description.nvlinks_up;
    }
  }
  api_->get_compute(device, &description.compute_major, &description.compute_minor);
  return description;
}

GpuTelemetry Nvml::Read(int gpu) const {
  const Device device = devices_[static_cast<size_t>(gpu)];
  GpuTelemetry telemetry;
  unsigned value = 0;
  if (api_->get_clock(device, kClockSm, &value) == kSuccess) {
    telemetry.sm_clock_mhz = value;
  }
  if (api_->get_clock(device, kClockMemory, &value) == kSuccess) {
    telemetry.memory_clock_mhz = value;
  }
  if (api_->get_power(device, &value) == kSuccess) {
    telemetry.power_w = value * 1e-3;  // NVML counts milliwatts.
  }
  if (api_->get_power_limit(device, &value) == kSuccess) {
    telemetry.power_limit_w = value * 1e-3;
  }
  if (api_->get_temperature(device, kTemperatureGpu, &value) == kSuccess) {
    telemetry.temperature_c = value;
  }
  unsigned long long wide = 0;
  if (api_->get_reasons != nullptr && api_->get_reasons(device, &wide) == kSuccess) {
    telemetry.throttle_reasons = wide;
  }
  if (api_->get_ecc_errors != nullptr &&
      api_->get_ecc_errors(device, kEccUncorrected, kEccVolatile, &wide) == kSuccess) {
    telemetry.ecc_errors = wide;
  }
  return telemetry;
}

GpuIdentity Nvml::IdentityOf(void* device) const {
  GpuIdentity identity;
  char text[96] = {};
  if (api_->get_uuid(device, text, sizeof(text)) == kSuccess) {
    identity.uuid = text;
  }
  unsigned most_parts = 0;
  if (api_->get_max_parts == nullptr || api_->get_part == nullptr ||
      api_->get_max_parts(device, &most_parts) != kSuccess) {
    return identity;
  }
  for (unsigned i = 0; i < most_parts; ++i) {
    Device part = nullptr;
    if (api_->get_part(device, i, &part) == kSuccess &&
        api_->get_uuid(part, text, sizeof(text)) == kSuccess) {
      identity.mig_uuids.emplace_back(text);
    }
  }
  return identity;
}

std::vector<GpuIdentity> Nvml::Identities() const {
  std::vector<GpuIdentity> identities;
  for (void* const device : devices_) {
    identities.push_back(IdentityOf(device));
  }
  return identities;
}

std::vector<VisibleGpu> Nvml::Visible() const {
  return VisibleGpus(Identities(), VisibleDevicesVariable());
}

absl::StatusOr<int> Nvml::FindUuid(const std::string& uuid) const {
  const std::vector<GpuIdentity> identities = Identities();
  const absl::string_view digits = DigitsOf(uuid);
  for (size_t gpu = 0; gpu < identities.size(); ++gpu) {
    const std::vector<std::string>& parts = identities[gpu].mig_uuids;
    if (DigitsOf(identities[gpu].uuid) == digits ||
        std::any_of(parts.begin(), parts.end(),
                    [&](const std::string& part) { return DigitsOf(part) == digits; })) {
      return static_cast<int>(gpu);
    }
  }
  return absl::NotFoundError(absl::StrCat("NVML knows no GPU ", uuid));
}

}  // namespace lastflop
