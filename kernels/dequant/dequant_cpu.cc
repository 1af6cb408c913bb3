#include <cassert>

#include "kernels/cpu/panel_format.h"
#include "kernels/dequant/dequant.h"
#include "kernels/dequant/dequant_builds.h"

namespace lastflop {

void DequantPanelPortable(int64_t cols, int64_t group, const std::byte* panel, std::byte* out) {
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t row = 0; row < kPanelRows; ++row) {
      const auto value = static_cast<float>(GetInt4(group, panel, row, c));
      PutBf16(out, row, c, ToBf16(value * GetInt4Scale(group, panel, row, c)));
    }
  }
}

void Dequant(const DequantShape& shape, const PairList& pairs, const PackedWeights& weights,
             const PackedLayout& out_layout, std::byte* out, ThreadPool& pool) {
  const PackedLayout& layout = *weights.layout;
  assert(out_layout.num_panels() == layout.num_panels() && out_layout.cols == layout.cols);
  auto* touched = reinterpret_cast<int32_t*>(pool.Scratch(0));
  assert(static_cast<size_t>(shape.num_local_experts) * sizeof(int32_t) <=
         ThreadPool::kScratchBytes);
  int64_t num_touched = 0;
  for (int64_t expert = 0; expert < shape.num_local_experts; ++expert) {
    const auto e = static_cast<size_t>(expert);
    if (pairs.offsets[e] != pairs.offsets[e + 1]) {
      touched[num_touched++] = static_cast<int32_t>(expert);
    }
  }
  pool.ParallelFor(num_touched * layout.num_panels(), [&](int64_t task, int /*thread*/) {
    const int64_t expert = touched[task / layout.num_panels()];
    const int64_t p = task % layout.num_panels();
    const std::byte* panel = weights.Panel(expert, p);
    std::byte* out_panel = out + out_layout.PanelOffset(expert, p);
#if defined(LASTFLOP_HAVE_AVX2)
    if (pool.isa() == VectorIsa::kAvx2) {
      DequantPanelAvx2(layout.cols, layout.storage.group_size, panel, out_panel);
      return;
    }
#endif
    DequantPanelPortable(layout.cols, layout.storage.group_size, panel, out_panel);
  });
}

}  // namespace lastflop
