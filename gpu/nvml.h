#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gpu/visible_gpus.h"

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
  std::vector<std::string> mig_uuids;  // "MIG-..." of the parts that it is divided into.
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
// others. GPUs are all of the host, numbered by PCI bus, whatever CUDA_VISIBLE_DEVICES says:
// Visible() has CUDA's own numbers. Not thread-safe.
class Nvml {
 public:
  // NotFound on a host without the driver.
  static absl::StatusOr<std::unique_ptr<Nvml>> Create();
  ~Nvml();

  int num_gpus() const { return static_cast<int>(devices_.size()); }
  const std::string& driver_version() const { return driver_version_; }
  // The newest CUDA that the driver runs, 13000 for 13.0; 0: it does not say.
  int cuda_version() const { return cuda_version_; }
  GpuDescription Describe(int gpu) const;
  GpuTelemetry Read(int gpu) const;
  // Names of all GPUs, in order.
  std::vector<GpuIdentity> Identities() const;
  // The GPUs that CUDA shows to this process: cuda:0, cuda:1, ... (gpu/visible_gpus.h).
  std::vector<VisibleGpu> Visible() const;
  // The GPU with this UUID, or with a part that has it, whatever the prefix ("GPU-", "MIG-");
  // NotFound.
  absl::StatusOr<int> FindUuid(const std::string& uuid) const;

 private:
  struct Api;
  GpuIdentity IdentityOf(void* device) const;
  explicit Nvml(std::unique_ptr<Api> api);
  std::unique_ptr<Api> api_;
  std::vector<void*> devices_;
  std::string driver_version_;
  int cuda_version_ = 0;
};

}  // namespace lastflop
