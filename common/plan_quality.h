#pragma once

#include <string>
#include <vector>

#include "common/model.h"
#include "common/plan.h"
#include "common/words.h"

namespace lastflop {

// Fields by which `variant` changes what `model` outputs, compared with `baseline`, as
// "moe.weights: bf16 -> int4_g32" in canonical order; empty when only rounding can differ.
// A number format changes the output unless it becomes bf16, which holds what the other formats
// stand for; leaving experts out changes it, a draft that is verified does not. Experts that become
// bf16 are UnquantizedExperts.
std::vector<std::string> LossyChanges(const Model& model, const Plan& baseline,
                                      const Plan& variant);

// "moe.weights: int4_g32 -> bf16" where `variant` has experts in bf16 and `baseline` has not, else
// "". That changes the output unless they are the baseline's dequantized, which no plan says.
std::string UnquantizedExperts(const Model& model, const Plan& baseline, const Plan& variant);

// Whether the outputs of the two plans' arms stand for the same tokens in the same places, so that
// their difference is an error. Drafts and data parallelism lay tokens out otherwise, and as a
// shard a rank of another parallelism holds other weights.
bool HasComparableOutput(const Plan& baseline, const Plan& variant, Fidelity fidelity);

}  // namespace lastflop
