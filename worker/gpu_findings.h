#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/nvml.h"
#include "gpu/visible_gpus.h"
#include "worker/doctor.h"

namespace lastflop {

// What is remarkable of a GPU, one of `num_gpus` of its host, and what it would spoil. Pure.
std::vector<Finding> FindingsOfGpu(int index, const GpuDescription& gpu, const GpuTelemetry& now,
                                   int num_gpus);

// What CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, unset or as given, make of the host's GPUs:
// those that they hide, and numbers that mean other GPUs to other programs. Pure.
std::vector<Finding> FindingsOfVisibility(const std::vector<GpuDescription>& gpus,
                                          const std::vector<VisibleGpu>& visible,
                                          const std::optional<std::string>& visible_devices,
                                          const std::optional<std::string>& device_order);

// Every GPU that CUDA shows to this process, with what a read and a product measure on it now:
// takes some seconds and touches the GPUs. One finding where there is none, or no backend for them.
std::vector<Finding> ExamineGpus();

}  // namespace lastflop
