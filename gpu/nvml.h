#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lastflop {

// What NVML says of a GPU at one moment. Unset: the driver does not say.
struct GpuTelemetry {
  std::optional<unsigned> sm_clock_mhz;
  std::optional<unsigned> memory_clock_mhz;
  std::optional<double> power_w;
  std::optional<double> power_limit_w;
  std::optional<unsigned> temperature_c;
  std::optional<uint64_t> throttle_reasons;  // Bits of nvmlClocksEventReason*.
  std::optional<uint64_t> ecc_errors;        // Uncorrected, since the driver was loaded.

  // Reasons that slow the clock below what was asked for: power, heat, hardware.
  bool is_throttled() const;
  std::string ThrottleText() const;  // "power cap, thermal" or "none".
};

// What stays as it is.
struct GpuDescription {
  std::string name;
  std::string uuid;
  std::string pci_bus_id;
  int64_t memory_bytes = 0;
  std::optional<unsigned> pcie_generation;  // The link's of now.
  std::optional<unsigned> pcie_generation_max;
  std::optional<unsigned> pcie_width;
  std::optional<unsigned> pcie_width_max;
  std::optional<bool> mig;
  std::optional<bool> persistence;
  std::optional<bool> ecc;
  int nvlinks_up = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

// The driver's management library, which does not touch the GPUs: safe in a process that spawns
// others. GPUs are numbered by PCI bus, as CUDA_DEVICE_ORDER=PCI_BUS_ID has them. Not thread-safe.
class Nvml {
 public:
  // NotFound on a host without the driver.
  static absl::StatusOr<std::unique_ptr<Nvml>> Create();
  ~Nvml();

  int num_gpus() const { return static_cast<int>(devices_.size()); }
  const std::string& driver_version() const { return driver_version_; }
  GpuDescription Describe(int gpu) const;
  GpuTelemetry Read(int gpu) const;
  // The GPU with this UUID ("GPU-..."); NotFound.
  absl::StatusOr<int> FindUuid(const std::string& uuid) const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
  std::vector<void*> devices_;
  std::string driver_version_;
};

}  // namespace lastflop
