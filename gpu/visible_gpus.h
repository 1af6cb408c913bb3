#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lastflop {

// What CUDA_VISIBLE_DEVICES can call a GPU by.
struct GpuIdentity {
  std::string uuid;                    // "GPU-..."
  std::vector<std::string> mig_uuids;  // "MIG-..." of the parts that it is divided into, in order.
};

// A device that CUDA numbers in a process.
struct VisibleGpu {
  int gpu = 0;           // Among all GPUs of the host, counted by PCI bus as NVML does.
  std::string mig_uuid;  // Of the part of it that the device is; "": all of it.

  friend bool operator==(const VisibleGpu&, const VisibleGpu&) = default;
};

// The devices cuda:0, cuda:1, ... of a process with this CUDA_VISIBLE_DEVICES (unset: nullopt) and
// CUDA_DEVICE_ORDER=PCI_BUS_ID, as the CUDA driver finds them. `gpus` are all of the host, by bus.
// Pure.
//
// The first entry decides: UUIDs or the beginnings of such, parts (MIG), else numbers. The list
// ends at the first entry that names no GPU or several; one GPU twice makes the whole list void. Of
// parts CUDA shows one, and beside it no whole GPU.
std::vector<VisibleGpu> VisibleGpus(const std::vector<GpuIdentity>& gpus,
                                    const std::optional<std::string>& visible_devices);

// Has CUDA number this process' GPUs, and those of its children, by PCI bus, whatever was asked
// for: its own default puts the fastest first, by a rule that is not told. Before the first CUDA
// call.
void NumberGpusByBus();

// CUDA_VISIBLE_DEVICES of this process.
std::optional<std::string> VisibleDevicesVariable();

}  // namespace lastflop
