#pragma once

#include "absl/status/status.h"
#include "worker/cpu_step.h"

namespace lastflop {

// Runs one op of the step on this rank, collectives with the other ranks. Errors come from
// collectives only: Aborted or DeadlineExceeded when another rank is lost.
absl::Status RunCpuOp(CpuStep& step, CpuOp& op);

}  // namespace lastflop
