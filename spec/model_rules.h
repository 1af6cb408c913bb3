#pragma once

#include <cstdint>
#include <string>

#include "common/model.h"

// What must hold between the sizes of a model, whichever file they were read from. Each answers ""
// or, in one line, the values and the rule.
namespace lastflop {

std::string TopKProblem(int64_t top_k, int64_t num_experts);
std::string KvHeadsProblem(int64_t num_kv_heads, int64_t num_heads);
// Rotation turns pairs of dimensions.
std::string RotaryDimProblem(int64_t rotary_dim);
std::string NumGroupsProblem(int64_t num_groups, int64_t num_experts);
// The chosen groups must hold the chosen experts. Needs a num_groups without a problem.
std::string TopKGroupsProblem(const RouterDims& router, int64_t top_k, int64_t num_experts);

// Bounds that keep every product of sizes inside 64 bits, far above any model.
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxExperts = 65536;
inline constexpr int64_t kMaxWidth = 1 << 24;

// Says in `assumed` where latent attention runs with other weights than are stored: its products
// with halves of kv_b_proj are in bf16 whatever the projection is stored in.
void AssumeAbsorbedKeys(Model& model);

}  // namespace lastflop
