#pragma once

#include "absl/status/status.h"
#include "common/model.h"
#include "common/plan.h"

namespace lastflop {

// Whether the CPU backend honours every field of the plan for this model. Unimplemented names the
// first field that it does not, its value and the reason. process.env is the worker's, which spawns
// the process with it.
absl::Status CheckCpuSupport(const Model& model, const Plan& plan);

}  // namespace lastflop
