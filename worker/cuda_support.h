#pragma once

#include "absl/status/status.h"
#include "common/model.h"
#include "common/plan.h"

namespace lastflop {

// Ok when the CUDA backend honours every field of the plan. Unimplemented names field, value and
// reason otherwise. Shapes that a kernel does not take are found when a step is loaded.
absl::Status CheckCudaSupport(const Model& model, const Plan& plan);

}  // namespace lastflop
