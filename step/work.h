#pragma once

#include "step/make_step.h"
#include "step/op.h"

namespace lastflop {

// The least work of a shape, with expert ops priced at `load` (one MoE layer of this rank). For
// shapes that touch no expert `load` does not matter.
Work WorkOf(const OpShape& shape, const ExpertLoad& load);

// Bytes that `out_features` x `in_features` weights take in `storage`, scales included.
double StoredBytes(const WeightStorage& storage, int64_t out_features, int64_t in_features);

// Bytes a value of a collective's payload takes.
double PayloadBytes(ActivationFormat payload);

}  // namespace lastflop
