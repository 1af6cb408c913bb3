#pragma once

#include <cstdint>

#include "common/campaign.h"
#include "common/model.h"
#include "common/plan.h"
#include "step/layout.h"
#include "step/op.h"

namespace lastflop {

// Tokens that have a place in the experts' tensors of a rank: its own, under data attention those
// of all ranks.
int64_t NumExpertTokens(const Plan& plan, const Point& point, const Layout& layout,
                        const Step& step);

// Bytes that a GPU arm keeps for its draws beside weights, caches and activations, which serving
// would not need: router scores of every kept MoE layer (fp32, tokens x experts), the routes that
// come of them, and room to exchange groups of experts in. Pure.
double DrawMemoryBytes(const Model& model, const Plan& plan, const Point& point,
                       const Layout& layout, const Step& step);

}  // namespace lastflop
