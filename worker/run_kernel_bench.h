#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/kernel_bench.h"

namespace lastflop {

// The request on the device it names, which is held for as long and whose machine is measured
// first. For a process of its own.
absl::StatusOr<KernelBenchResult> RunKernelBench(KernelBenchRequest request);

// `lastflop-worker --bench FILE`: the request in the file, the result as JSON on stdout. Returns an
// exit code.
int PrintKernelBench(const std::string& request_file);

}  // namespace lastflop
