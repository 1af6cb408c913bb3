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

// Panels whose sums a tile under swiglu keeps until their other halves are there.
constexpr int64_t kMostGatePanels = 64;

// Panels that are dealt out: under swiglu those of gate, each with its one of up.
int64_t NumUnits(const ExpertGemmShape& shape, const PackedLayout& layout) {
  return shape.swiglu ? layout.num_panels() / 2 : layout.num_panels();
}

int64_t UnitsPerTile(const ExpertGemmShape& shape, const PackedLayout& layout) {
  const int64_t panels = shape.swiglu
                             ? std::min(kTileWeightBytes / layout.panel_bytes / 2, kMostGatePanels)
                             : kTileWeightBytes / layout.panel_bytes;
  return std::clamp<int64_t>(panels, 1, NumUnits(shape, layout));
}

// What the threads of a call share.
struct Call {
  const ExpertGemmShape& shape;
  const PackedWeights& weights;
  std::span<Bf16> out;
  VectorIsa isa;

  // out of a tile's rows for panels [begin, end).
  void RunPanels(const TileSchedule::Tile& tile, const PreparedRows& rows, int64_t begin,
                 int64_t end, float* scratch) const;
  // The same under swiglu: panels of gate with theirs of up.
  void RunSwigluPanels(const TileSchedule::Tile& tile, const PreparedRows& rows, int64_t begin,
                       int64_t end, float* scratch) const;
};

void Call::RunPanels(const TileSchedule::Tile& tile, const PreparedRows& rows, int64_t begin,
                     int64_t end, float* scratch) const {
  const PackedLayout& layout = *weights.layout;
  for (int64_t p = begin; p < end; ++p) {
    const PackedLayout::Panel& panel = layout.panels[static_cast<size_t>(p)];
    PanelGemm(layout, weights.Panel(tile.expert, p), rows, scratch, isa);
    StorePanel(scratch, rows.num_rows, panel.num_rows,
               out.data() + tile.row_begin * layout.rows + panel.first_row, layout.rows, isa);
  }
}

void Call::RunSwigluPanels(const TileSchedule::Tile& tile, const PreparedRows& rows, int64_t begin,
                           int64_t end, float* scratch) const {
  const PackedLayout& layout = *weights.layout;
  const int64_t columns = shape.out_columns();
  const int64_t tile_floats = rows.num_rows * kPanelRows;
  float* const up = scratch + (end - begin) * tile_floats;
  // All of gate before all of up: each is one stream of memory.
  for (int64_t p = begin; p < end; ++p) {
    PanelGemm(layout, weights.Panel(tile.expert, p), rows, scratch + (p - begin) * tile_floats,
              isa);
  }
  for (int64_t p = begin; p < end; ++p) {
    const PackedLayout::Panel& panel = layout.panels[static_cast<size_t>(p)];
    const float* const gate = scratch + (p - begin) * tile_floats;
    PanelGemm(layout, weights.Panel(tile.expert, layout.num_panels() / 2 + p), rows, up, isa);
    for (int64_t i = 0; i < rows.num_rows; ++i) {
      SiluMul(gate + i * kPanelRows, up + i * kPanelRows, panel.num_rows,
              out.data() + (tile.row_begin + i) * columns + panel.first_row, isa);
    }
  }
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
  assert(!shape.swiglu || layout.part_rows.size() == 2);
  const int64_t num_units = NumUnits(shape, layout);
  const int64_t units_per_tile = UnitsPerTile(shape, layout);
  const int64_t num_n = (num_units + units_per_tile - 1) / units_per_tile;
  TileSchedule schedule(pairs.offsets, kTileRows, num_n, shape.tile_order, shape.group_m,
                        {reinterpret_cast<int64_t*>(workspace.data()), pairs.offsets.size()});
  schedule.Prepare();

  std::byte* prepared = workspace.data() + TileBeginBytes(shape);
  const int64_t row_bytes = PreparedRowBytes(layout);
  const int64_t num_rows = shape.gather_tokens ? shape.num_tokens : pairs.num_pairs();
  const Call call{.shape = shape, .weights = weights, .out = out, .isa = pool.isa()};
  const auto run_tile = [&](const TileSchedule::Tile& tile, float* scratch) {
    const PreparedRows rows = {
        .data = prepared + (shape.gather_tokens ? 0 : tile.row_begin * row_bytes),
        .row_bytes = row_bytes,
        .index = shape.gather_tokens ? pairs.token.data() + tile.row_begin : nullptr,
        .num_rows = tile.row_end - tile.row_begin};
    const int64_t begin = tile.n * units_per_tile;
    const int64_t end = std::min(begin + units_per_tile, num_units);
    if (shape.swiglu) {
      call.RunSwigluPanels(tile, rows, begin, end, scratch);
    } else {
      call.RunPanels(tile, rows, begin, end, scratch);
    }
  };
  pool.RunOnAll([&](int thread) {
    for (int64_t row = pool.NextTask(0); row < num_rows; row = pool.NextTask(0)) {
      PrepareRow(layout, in.data() + row * layout.cols, prepared + row * row_bytes, pool.isa());
    }
    pool.Barrier();
    auto* scratch = reinterpret_cast<float*>(pool.Scratch(thread));
    size_t expert = 0;
    for (int64_t i = pool.NextTask(1); i < schedule.num_tiles(); i = pool.NextTask(1)) {
      run_tile(schedule.Find(i, expert), scratch);
    }
  });
}

}  // namespace lastflop
