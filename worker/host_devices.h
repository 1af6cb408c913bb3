#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/machine.h"
#include "gpu/nvml.h"
#include "gpu/visible_gpus.h"

namespace lastflop {

// The devices that this build runs on here: "cuda:0" ... where there is a CUDA backend and CUDA
// shows GPUs to this process (CUDA_VISIBLE_DEVICES), else "cpu:0". Asks NVML, not CUDA.
std::vector<std::string> HostDevices();

// What a host has that a worker can be for.
struct DeviceCounts {
  int num_cores = 0;
  int num_gpus = 0;  // That this build can use.
};

// InvalidArgument, with what there is, unless `device` is "cuda:N" of a GPU or "cpu:N". Each worker
// on the CPU is one rank; ranks may share cores, up to eight of them one.
absl::Status CheckDevice(const std::string& device, const DeviceCounts& counts);

// Of this host.
absl::Status CheckDevice(const std::string& device);

// Which one a device is among all of the host, whatever number this process has for it.
struct DeviceIdentity {
  // What holds of it are for: a GPU's UUID, also for a part of it (parts share power and clocks);
  // else the device's own name.
  std::string lock_name;
  std::string gpu_uuid;  // Of a whole GPU; "" where it is none, or NVML does not tell.
};

// Pure: of a process with this CUDA_VISIBLE_DEVICES on a host with these GPUs.
DeviceIdentity IdentityOf(const std::string& device, const std::vector<GpuIdentity>& gpus,
                          const std::optional<std::string>& visible_devices);

// In this process.
DeviceIdentity IdentityOf(const std::string& device);

// What is known of a GPU without touching it: kind, memory, link. Its L2 and speeds are
// ProbeCudaDevice()'s (worker/device_probe.h).
Machine DescribeGpu(const GpuDescription& gpu, int num_gpus);

// The same of cuda:N of this process, as NVML describes it. NotFound for a GPU that CUDA does not
// show.
absl::StatusOr<Machine> DescribeCudaDevice(const Nvml& nvml, int index);

// The machine around a device of this host, measured: the CPU's here, a GPU's in a process of its
// own, once a process of ours. NotFound for a GPU that is not there.
absl::StatusOr<Machine> MachineOfDevice(const std::string& device);

}  // namespace lastflop
