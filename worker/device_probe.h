#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/machine.h"

namespace lastflop {

// `machine` with what only a process that runs on the GPU finds: L2 size, cold-read curve, the gap
// between launches and, where cuBLASLt is, the best rate of bf16 products. Takes about three
// seconds and 4 GB. For processes of their own: a worker never touches its GPU. Unimplemented in a
// build without CUDA.
absl::StatusOr<Machine> ProbeCudaDevice(int device_index, Machine machine);

// The rate of a large bf16 product of cuBLASLt, in TFLOP/s.
absl::StatusOr<double> ProbeProductTflopPerS(int device_index);

// Pairs of this host's GPUs ("0 -> 1") of which the first cannot read the second's memory.
absl::StatusOr<std::vector<std::string>> GpusWithoutPeerAccess();

// Whether this build runs on GPUs.
bool HasCudaBackend();

// Of the toolkit that this build is of: 13000 for 13.0; 0 without the CUDA backend.
int CudaVersionOfBuild();

}  // namespace lastflop
