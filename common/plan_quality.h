#pragma once

#include <string>
#include <vector>

#include "common/model.h"
#include "common/plan.h"

namespace lastflop {

// Fields by which `variant` changes what `model` outputs, compared with `baseline`, as
// "moe.weights: bf16 -> int4_g32" in canonical order; empty when only rounding can differ.
// A number format changes the output unless it becomes bf16, which holds what the other formats
// stand for; leaving experts out changes it, a draft that is verified does not.
std::vector<std::string> LossyChanges(const Model& model, const Plan& baseline,
                                      const Plan& variant);

}  // namespace lastflop
