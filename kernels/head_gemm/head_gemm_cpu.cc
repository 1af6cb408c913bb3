#include <algorithm>
#include <cassert>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/panel_gemm.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/head_gemm/head_gemm.h"

namespace lastflop {
namespace {

// Tokens of a task: prepared rows and a tile of output fit a thread's scratch.
constexpr int64_t kPreparedBytes = 128 << 10;
constexpr int64_t kMaxTaskTokens = 96;

// How a head is cut: into parts of its panels when there are fewer heads than threads want.
struct Cut {
  int64_t tokens = 0;
  int64_t token_blocks = 0;
  int64_t panels = 0;
  int64_t panel_blocks = 0;
};

Cut CutOf(const HeadGemmShape& shape, const PackedLayout& layout, int num_threads) {
  Cut cut;
  cut.tokens = std::clamp<int64_t>(kPreparedBytes / PreparedRowBytes(layout), 1, kMaxTaskTokens);
  cut.token_blocks = (shape.num_tokens + cut.tokens - 1) / cut.tokens;
  const int64_t wanted = 4 * num_threads;
  const int64_t tasks = std::max<int64_t>(1, shape.num_heads * cut.token_blocks);
  const int64_t parts = std::clamp<int64_t>(wanted / tasks, 1, layout.num_panels());
  cut.panels = (layout.num_panels() + parts - 1) / parts;
  cut.panel_blocks = (layout.num_panels() + cut.panels - 1) / cut.panels;
  return cut;
}

}  // namespace

absl::Status ValidateHeadGemm(const HeadGemmShape& shape) {
  if (shape.num_tokens < 0 || shape.num_heads < 1 || shape.out_features < 1 ||
      shape.in_features < 1 || shape.in_stride < shape.in_features ||
      shape.out_stride < shape.out_features ||
      shape.in_features * static_cast<int64_t>(sizeof(float)) > kPreparedBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "head_gemm: num_tokens=", shape.num_tokens, " num_heads=", shape.num_heads,
        " out_features=", shape.out_features, " in_features=", shape.in_features,
        " in_stride=", shape.in_stride, " out_stride=", shape.out_stride, ": in_features is 1 to ",
        kPreparedBytes / 4, " and strides hold their features"));
  }
  return absl::OkStatus();
}

void HeadGemm(const HeadGemmShape& shape, const PackedWeights& weights, std::span<const Bf16> in,
              std::span<Bf16> out, ThreadPool& pool) {
  const PackedLayout& layout = *weights.layout;
  assert(layout.num_matrices == shape.num_heads && layout.rows == shape.out_features &&
         layout.cols == shape.in_features);
  const Cut cut = CutOf(shape, layout, pool.num_threads());
  const int64_t row_bytes = PreparedRowBytes(layout);
  const int64_t in_pitch = shape.num_heads * shape.in_stride;
  const int64_t out_pitch = shape.num_heads * shape.out_stride;
  const int64_t tasks_per_head = cut.token_blocks * cut.panel_blocks;
  pool.ParallelFor(shape.num_heads * tasks_per_head, [&](int64_t task, int thread) {
    const int64_t head = task / tasks_per_head;
    const int64_t first_token = task % tasks_per_head / cut.panel_blocks * cut.tokens;
    const int64_t first_panel = task % cut.panel_blocks * cut.panels;
    const int64_t num_tokens = std::min(cut.tokens, shape.num_tokens - first_token);
    const int64_t end = std::min(first_panel + cut.panels, layout.num_panels());
    auto* const tile = reinterpret_cast<float*>(pool.Scratch(thread));
    std::byte* const prepared =
        pool.Scratch(thread) + kMaxTaskTokens * kPanelRows * static_cast<int64_t>(sizeof(float));
    for (int64_t t = 0; t < num_tokens; ++t) {
      PrepareRow(layout, in.data() + (first_token + t) * in_pitch + head * shape.in_stride,
                 prepared + t * row_bytes, pool.isa());
    }
    const PreparedRows rows = {.data = prepared, .row_bytes = row_bytes, .num_rows = num_tokens};
    for (int64_t p = first_panel; p < end; ++p) {
      const PackedLayout::Panel& panel = layout.panels[static_cast<size_t>(p)];
      PanelGemm(layout, weights.Panel(head, p), rows, tile, pool.isa());
      StorePanel(tile, num_tokens, panel.num_rows,
                 out.data() + first_token * out_pitch + head * shape.out_stride + panel.first_row,
                 out_pitch, pool.isa());
    }
  });
}

}  // namespace lastflop
