#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/kernel_bench.h"
#include "common/machine.h"
#include "worker/arm.h"

// Times the routed experts of a model on one rank, kernel by kernel, with the arms that trials run:
// the same weights, routing, checks and cold caches, and no other op of the step.
namespace lastflop {

// Every kernel at every batch on `backend`, which was made with experts_only for the request's
// model. What a kernel, shape or device cannot run becomes a row with the reason, and the rest goes
// on. Floors are those of `machine`. Errors: what is no answer about a kernel.
absl::StatusOr<std::vector<KernelBenchRow>> BenchKernels(const KernelBenchRequest& request,
                                                         const Machine& machine, Backend& backend);

}  // namespace lastflop
