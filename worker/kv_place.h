#pragma once

#include <cstdint>
#include <string>

#include "common/model.h"
#include "kernels/attention/kv_cache.h"
#include "step/layout.h"
#include "step/shapes.h"

namespace lastflop {

// Which part of the deployment's cache a rank holds.
KvSlice KvSliceOf(const Model& model, const Layout& layout, const AttentionShape& shape,
                  int64_t first_sequence);

// Equal for caches with equal contents.
std::string KvCacheKey(const AttentionShape& shape, const KvSlice& slice, int layer, bool zeros);

}  // namespace lastflop
