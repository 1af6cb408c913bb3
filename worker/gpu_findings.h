#pragma once

#include <vector>

#include "gpu/nvml.h"
#include "worker/doctor.h"

namespace lastflop {

// What is remarkable of a GPU, one of `num_gpus` of its host, and what it would spoil. Pure.
std::vector<Finding> FindingsOfGpu(int index, const GpuDescription& gpu, const GpuTelemetry& now,
                                   int num_gpus);

// Every GPU of this host, with what a read and a product measure on it now: takes some seconds and
// touches the GPUs. One finding where there is none, or no backend for them.
std::vector<Finding> ExamineGpus();

}  // namespace lastflop
