#pragma once

#include <variant>

#include "absl/status/status.h"
#include "common/plan.h"
#include "step/op.h"

namespace lastflop {

// Whether an op is a plugin's: a fused MoE op that reads the routing itself, not a permutation.
inline bool IsPluginOp(const Op& op) {
  return std::holds_alternative<FusedMoeShape>(op.shape) && op.in2 == Tensor::kRouting;
}

// Whether fields beside moe.kernel=plugin:NAME ask for what only lastflop's own kernels have, on
// any backend: Unimplemented names the first one.
absl::Status CheckPluginFields(const Plan::Moe& moe);

}  // namespace lastflop
