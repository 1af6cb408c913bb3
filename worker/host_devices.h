#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/machine.h"
#include "gpu/nvml.h"

namespace lastflop {

// The devices that this build runs on here: "cuda:0" ... where there are GPUs and a CUDA backend,
// else "cpu:0". Asks NVML, not CUDA.
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

// What is known of a GPU without touching it: kind, memory, link. Its L2 and speeds are
// ProbeCudaDevice()'s (worker/device_probe.h).
Machine DescribeGpu(const GpuDescription& gpu, int num_gpus);

// The machine around a device of this host, measured: the CPU's here, a GPU's in a process of its
// own, once a process of ours. NotFound for a GPU that is not there.
absl::StatusOr<Machine> MachineOfDevice(const std::string& device);

}  // namespace lastflop
