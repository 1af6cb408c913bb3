#include <algorithm>
#include <cassert>

#include "kernels/cpu/panel_gemm.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/grouped_gemm/tile_schedule.h"

namespace lastflop {
namespace {

// A tile's weights: enough work for a dispatch, small enough to stay in L2 with its activations.
constexpr int64_t kTileWeightBytes = 64 << 10;
constexpr int64_t kTileRows = 24;

int64_t PanelsPerTile(const PackedLayout& layout) {
  return std::clamp<int64_t>(kTileWeightBytes / layout.panel_bytes, 1, layout.num_panels());
}

int64_t TileBeginBytes(const ExpertGemmShape& shape) {
  return ((shape.num_local_experts + 1) * 8 + 63) / 64 * 64;
}

}  // namespace

int64_t GroupedGemmWorkspaceBytes(const ExpertGemmShape& shape, const PackedLayout& weights) {
  const int64_t rows = shape.gather_tokens ? shape.num_tokens : shape.num_tokens * shape.top_k;
  return TileBeginBytes(shape) + rows * PreparedRowBytes(weights);
}

void GroupedGemm(const ExpertGemmShape& shape, const PairList& pairs, const PackedWeights& weights,
                 std::span<const Bf16> in, std::span<Bf16> out, std::span<std::byte> workspace,
                 ThreadPool& pool) {
  const PackedLayout& layout = *weights.layout;
  assert(static_cast<int64_t>(workspace.size()) >= GroupedGemmWorkspaceBytes(shape, layout));
  assert(layout.rows == shape.out_features && layout.cols == shape.in_features);
  const int64_t panels_per_tile = PanelsPerTile(layout);
  const int64_t num_n = (layout.num_panels() + panels_per_tile - 1) / panels_per_tile;
  TileSchedule schedule(pairs.offsets, kTileRows, num_n, shape.tile_order, shape.group_m,
                        {reinterpret_cast<int64_t*>(workspace.data()), pairs.offsets.size()});
  schedule.Prepare();

  std::byte* prepared = workspace.data() + TileBeginBytes(shape);
  const int64_t row_bytes = PreparedRowBytes(layout);
  const int64_t num_rows = shape.gather_tokens ? shape.num_tokens : pairs.num_pairs();
  const auto run_tile = [&](const TileSchedule::Tile& tile, float* tile_out) {
    const PreparedRows rows = {
        .data = prepared + (shape.gather_tokens ? 0 : tile.row_begin * row_bytes),
        .row_bytes = row_bytes,
        .index = shape.gather_tokens ? pairs.token.data() + tile.row_begin : nullptr,
        .num_rows = tile.row_end - tile.row_begin};
    const int64_t end = std::min((tile.n + 1) * panels_per_tile, layout.num_panels());
    for (int64_t p = tile.n * panels_per_tile; p < end; ++p) {
      const PackedLayout::Panel& panel = layout.panels[static_cast<size_t>(p)];
      PanelGemm(layout, weights.Panel(tile.expert, p), rows, tile_out, pool.isa());
      StorePanel(tile_out, rows.num_rows, panel.num_rows,
                 out.data() + tile.row_begin * layout.rows + panel.first_row, layout.rows,
                 pool.isa());
    }
  };
  pool.RunOnAll([&](int thread) {
    for (int64_t row = pool.NextTask(0); row < num_rows; row = pool.NextTask(0)) {
      PrepareRow(layout, in.data() + row * layout.cols, prepared + row * row_bytes, pool.isa());
    }
    pool.Barrier();
    auto* tile_out = reinterpret_cast<float*>(pool.Scratch(thread));
    size_t expert = 0;
    for (int64_t i = pool.NextTask(1); i < schedule.num_tiles(); i = pool.NextTask(1)) {
      run_tile(schedule.Find(i, expert), tile_out);
    }
  });
}

}  // namespace lastflop
