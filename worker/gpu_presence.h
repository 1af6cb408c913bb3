#pragma once

#include <optional>
#include <string>

namespace lastflop {

// What a process finds of this host's NVIDIA GPUs and of what it takes to use them.
struct GpuPresence {
  int num_seen = 0;    // By NVML, else by what the kernel shows of them.
  int num_usable = 0;  // That CUDA numbers in this process, by NVML.
  std::string nvml_error;
  std::optional<std::string> visible_devices;  // CUDA_VISIBLE_DEVICES.
  int build_cuda = 0;   // 13000 for 13.0; 0: a build without the CUDA backend.
  int driver_cuda = 0;  // The newest that the driver runs; 0: not known.
};

// Why GPUs that are there are not used.
struct UnusedGpus {
  std::string found;   // "2 NVIDIA GPUs, and ..."
  std::string spoils;  // What results are then.
  std::string advice;
  std::string Text() const;  // All of it, a sentence.
};

// Nullopt: there are none, or they can be used. Pure.
std::optional<UnusedGpus> FindUnusedGpus(const GpuPresence& presence);

// Of this process.
std::optional<UnusedGpus> FindUnusedGpus();

// GPUs that the driver's module or their device files show below `root` ("" for the host's own
// tree), where NVML does not help.
int CountGpusBelow(const std::string& root);

}  // namespace lastflop
