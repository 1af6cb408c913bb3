#include <algorithm>
#include <cassert>
#include <numeric>

#include "kernels/cpu/panel_gemm.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/fused_moe/fused_moe.h"
#include "kernels/grouped_gemm/tile_schedule.h"

namespace lastflop {
namespace {

constexpr int64_t kTileWeightBytes = 64 << 10;
constexpr int64_t kTileRows = 24;
constexpr int64_t kTileFloats = kTileRows * kPanelRows;
// A thread's scratch holds, in the first half, up's tile, act and gate's tiles; in the second,
// down's tile and the sums of tokens.
constexpr int64_t kSumOffset = kTileFloats;
constexpr int64_t kSumFloats =
    static_cast<int64_t>(ThreadPool::kScratchBytes / sizeof(float)) - kSumOffset;
constexpr int64_t kMaxBlockTokens = 512;
constexpr int64_t kMaxChunkPanels = 16;
// act and gate of a tile, at most, are 1.5 floats for each element of tile and panel.
static_assert(kTileFloats * (1 + kMaxChunkPanels * 3 / 2) * sizeof(float) + 64 <=
              ThreadPool::kScratchBytes);

int64_t RoundUp64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Everything that one call works with. The layout of `workspace`: tile counts, touched experts,
// prepared tokens, prepared act.
struct Call {
  const FusedMoeShape& shape;
  const PairList& pairs;
  const PackedWeights& gate_up;
  const PackedWeights& down;
  std::span<const Bf16> in;
  std::span<const Bf16> shared;
  std::span<Bf16> out;
  ThreadPool& pool;
  int64_t chunk_panels = 0;  // Panels of gate, and of up, that a tile of the first half has.
  int64_t token_row_bytes = 0;
  int64_t act_row_bytes = 0;
  std::span<int32_t> touched;  // Experts with pairs.
  std::byte* tokens = nullptr;
  std::byte* act = nullptr;
};

// Asks for the begin of a stream that is read soon: the hardware prefetcher takes over from there.
void PrefetchStream(const std::byte* at) {
  constexpr int64_t kBytes = 1024;
  for (int64_t i = 0; i < kBytes; i += 64) {
    __builtin_prefetch(at + i, /*rw=*/0, /*locality=*/2);
  }
}

// Chunks of act end where a weight group of down does, so that a tile prepares what it made.
int64_t ChunkPanels(const PackedLayout& gate_up, const PackedLayout& down) {
  const int64_t panels_per_group = std::max<int64_t>(1, down.storage.group_size / kPanelRows);
  const int64_t wanted =
      std::clamp<int64_t>(kTileWeightBytes / gate_up.panel_bytes, 1, kMaxChunkPanels);
  return (wanted + panels_per_group - 1) / panels_per_group * panels_per_group;
}

// First half: act of some pairs of an expert for a chunk of the intermediate features.
void RunGateUpTile(const Call& call, const TileSchedule::Tile& tile, float* scratch) {
  const PackedLayout& layout = *call.gate_up.layout;
  const int64_t intermediate = call.shape.moe_intermediate_size;
  const int64_t panels = layout.num_panels() / 2;
  const VectorIsa isa = call.pool.isa();
  const PreparedRows rows = {.data = call.tokens,
                             .row_bytes = call.token_row_bytes,
                             .index = call.pairs.token.data() + tile.row_begin,
                             .num_rows = tile.row_end - tile.row_begin};
  const int64_t begin = tile.n * call.chunk_panels;
  const int64_t end = std::min(begin + call.chunk_panels, panels);
  const int64_t first_col = begin * kPanelRows;
  const int64_t num_cols = std::min(end * kPanelRows, intermediate) - first_col;
  const int64_t tile_floats = rows.num_rows * kPanelRows;
  float* up = scratch;
  auto* act = reinterpret_cast<Bf16*>(scratch + kTileFloats);  // [rows, num_cols]
  float* gate = scratch + kTileFloats + (rows.num_rows * num_cols + 31) / 32 * 16;
  PrefetchStream(call.gate_up.Panel(tile.expert, panels + begin));
  // All of gate before all of up: each is one stream of memory.
  for (int64_t p = begin; p < end; ++p) {
    PanelGemm(layout, call.gate_up.Panel(tile.expert, p), rows, gate + (p - begin) * tile_floats,
              isa);
  }
  for (int64_t p = begin; p < end; ++p) {
    PanelGemm(layout, call.gate_up.Panel(tile.expert, panels + p), rows, up, isa);
    const int64_t size = layout.panels[static_cast<size_t>(p)].num_rows;
    for (int64_t i = 0; i < rows.num_rows; ++i) {
      SiluMul(gate + (p - begin) * tile_floats + i * kPanelRows, up + i * kPanelRows, size,
              act + i * num_cols + (p - begin) * kPanelRows, isa);
    }
  }
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    PrepareColumns(*call.down.layout, act + i * num_cols, first_col, num_cols,
                   call.act + (tile.row_begin + i) * call.act_row_bytes, isa);
  }
}

// Pairs of an expert whose tokens are in [token_begin, token_end): pairs are in order of token.
std::pair<int32_t, int32_t> PairsOfBlock(const PairList& pairs, int64_t expert, int64_t token_begin,
                                         int64_t token_end) {
  const auto e = static_cast<size_t>(expert);
  const auto begin = pairs.token.begin() + pairs.offsets[e];
  const auto end = pairs.token.begin() + pairs.offsets[e + 1];
  const auto first = std::lower_bound(begin, end, token_begin);
  const auto last = std::lower_bound(first, end, token_end);
  return {static_cast<int32_t>(first - pairs.token.begin()),
          static_cast<int32_t>(last - pairs.token.begin())};
}

// How the second half is cut: blocks of tokens times tiles of panels.
struct DownTiles {
  int64_t block_tokens = 0;
  int64_t panels = 0;
  int64_t num_blocks = 0;
  int64_t num_n = 0;
};

// Long streams of each expert's weights, as far as there are tasks for all threads and room for
// the sums.
DownTiles CutDown(const FusedMoeShape& shape, const PackedLayout& down, int num_threads) {
  DownTiles tiles;
  tiles.block_tokens = std::clamp<int64_t>(shape.num_tokens, 1, kMaxBlockTokens);
  tiles.panels = std::max<int64_t>(
      1, std::min({kSumFloats / (tiles.block_tokens * kPanelRows),
                   kTileWeightBytes / down.panel_bytes, down.num_panels() / (4 * num_threads)}));
  tiles.num_blocks = (shape.num_tokens + tiles.block_tokens - 1) / tiles.block_tokens;
  tiles.num_n = (down.num_panels() + tiles.panels - 1) / tiles.panels;
  return tiles;
}

// sums[t, :] += weight * (act of the pair times one panel), for pairs [row_begin, row_end).
void AddDownPanel(const Call& call, int64_t expert, int64_t p, int32_t row_begin, int32_t row_end,
                  float* tile_out, float* sums, int64_t sum_stride, int64_t token_begin) {
  const PreparedRows rows = {.data = call.act + row_begin * call.act_row_bytes,
                             .row_bytes = call.act_row_bytes,
                             .num_rows = row_end - row_begin};
  PanelGemm(*call.down.layout, call.down.Panel(expert, p), rows, tile_out, call.pool.isa());
  for (int64_t i = 0; i < rows.num_rows; ++i) {
    const auto pair = static_cast<size_t>(row_begin + i);
    AddScaled(call.pairs.weight[pair], tile_out + i * kPanelRows, kPanelRows,
              sums + (call.pairs.token[pair] - token_begin) * sum_stride, call.pool.isa());
  }
}

// All experts' part of one tile of the output.
void AddExperts(const Call& call, int64_t token_begin, int64_t token_end, int64_t panel_begin,
                int64_t panel_end, float* scratch, float* sums) {
  const int64_t stride = (panel_end - panel_begin) * kPanelRows;
  const auto add = [&](int64_t expert, int64_t p, int32_t row, int32_t end) {
    AddDownPanel(call, expert, p, row, std::min<int32_t>(end, row + kTileRows), scratch,
                 sums + (p - panel_begin) * kPanelRows, stride, token_begin);
  };
  for (size_t i = 0; i < call.touched.size(); ++i) {
    const int64_t expert = call.touched[i];
    if (i + 1 < call.touched.size()) {
      PrefetchStream(call.down.Panel(call.touched[i + 1], panel_begin));
    }
    const auto [begin, end] = PairsOfBlock(call.pairs, expert, token_begin, token_end);
    if (call.shape.tile_order == TileOrder::kRowMajor) {
      for (int32_t row = begin; row < end; row += kTileRows) {
        for (int64_t p = panel_begin; p < panel_end; ++p) {
          add(expert, p, row, end);
        }
      }
    } else if (begin < end) {
      for (int64_t p = panel_begin; p < panel_end; ++p) {
        for (int32_t row = begin; row < end; row += kTileRows) {
          add(expert, p, row, end);
        }
      }
    }
  }
}

// Second half: out of a block of tokens for some panels of hidden features.
void RunDownTile(const Call& call, const DownTiles& tiles, int64_t task, float* scratch) {
  const PackedLayout& layout = *call.down.layout;
  const int64_t hidden = call.shape.hidden_size;
  const int64_t token_begin = task / tiles.num_n * tiles.block_tokens;
  const int64_t token_end = std::min(token_begin + tiles.block_tokens, call.shape.num_tokens);
  const int64_t panel_begin = task % tiles.num_n * tiles.panels;
  const int64_t panel_end = std::min(panel_begin + tiles.panels, layout.num_panels());
  const int64_t stride = (panel_end - panel_begin) * kPanelRows;
  const int64_t first_col = panel_begin * kPanelRows;
  const int64_t num_cols = std::min(panel_end * kPanelRows, hidden) - first_col;
  float* sums = scratch + kSumOffset;
  std::fill_n(sums, (token_end - token_begin) * stride, 0.0f);
  AddExperts(call, token_begin, token_end, panel_begin, panel_end, scratch, sums);
  for (int64_t t = token_begin; t < token_end; ++t) {
    float* sum = sums + (t - token_begin) * stride;
    if (call.shape.add_shared) {
      AddScaled(1.0f, call.shared.data() + t * hidden + first_col, num_cols, sum, call.pool.isa());
    }
    StoreRow(sum, num_cols, call.out.data() + t * hidden + first_col, call.pool.isa());
  }
}

int64_t TileBeginBytes(const FusedMoeShape& shape) {
  return RoundUp64((shape.num_local_experts + 1) * 8);
}

int64_t TouchedBytes(const FusedMoeShape& shape) { return RoundUp64(shape.num_local_experts * 4); }

// Lists the experts with pairs in `memory`.
std::span<int32_t> TouchedExperts(const PairList& pairs, std::byte* memory) {
  auto* touched = reinterpret_cast<int32_t*>(memory);
  size_t count = 0;
  for (size_t expert = 0; expert + 1 < pairs.offsets.size(); ++expert) {
    if (pairs.offsets[expert] != pairs.offsets[expert + 1]) {
      touched[count++] = static_cast<int32_t>(expert);
    }
  }
  return {touched, count};
}

}  // namespace

int64_t FusedMoeWorkspaceBytes(const FusedMoeShape& shape, const PackedLayout& gate_up,
                               const PackedLayout& down) {
  return TileBeginBytes(shape) + TouchedBytes(shape) +
         shape.num_tokens * PreparedRowBytes(gate_up) +
         shape.num_tokens * shape.top_k * PreparedRowBytes(down);
}

void FusedMoe(const FusedMoeShape& shape, const PairList& pairs, const PackedWeights& gate_up,
              const PackedWeights& down, std::span<const Bf16> in, std::span<const Bf16> shared,
              std::span<Bf16> out, std::span<std::byte> workspace, ThreadPool& pool) {
  assert(static_cast<int64_t>(workspace.size()) >=
         FusedMoeWorkspaceBytes(shape, *gate_up.layout, *down.layout));
  assert(gate_up.layout->part_rows.size() == 2);
  Call call{.shape = shape,
            .pairs = pairs,
            .gate_up = gate_up,
            .down = down,
            .in = in,
            .shared = shared,
            .out = out,
            .pool = pool,
            .chunk_panels = ChunkPanels(*gate_up.layout, *down.layout),
            .token_row_bytes = PreparedRowBytes(*gate_up.layout),
            .act_row_bytes = PreparedRowBytes(*down.layout),
            .touched = TouchedExperts(pairs, workspace.data() + TileBeginBytes(shape)),
            .tokens = workspace.data() + TileBeginBytes(shape) + TouchedBytes(shape)};
  call.act = call.tokens + shape.num_tokens * call.token_row_bytes;
  const int64_t panels = gate_up.layout->num_panels() / 2;
  TileSchedule schedule(pairs.offsets, kTileRows,
                        (panels + call.chunk_panels - 1) / call.chunk_panels, shape.tile_order,
                        /*group_m=*/0,
                        {reinterpret_cast<int64_t*>(workspace.data()), pairs.offsets.size()});
  schedule.Prepare();
  const DownTiles tiles = CutDown(shape, *down.layout, pool.num_threads());
  pool.RunOnAll([&](int thread) {
    for (int64_t t = pool.NextTask(0); t < shape.num_tokens; t = pool.NextTask(0)) {
      PrepareRow(*gate_up.layout, in.data() + t * shape.hidden_size,
                 call.tokens + t * call.token_row_bytes, pool.isa());
    }
    pool.Barrier();
    auto* scratch = reinterpret_cast<float*>(pool.Scratch(thread));
    size_t expert = 0;
    for (int64_t i = pool.NextTask(1); i < schedule.num_tiles(); i = pool.NextTask(1)) {
      RunGateUpTile(call, schedule.Find(i, expert), scratch);
    }
    pool.Barrier();
    const int64_t num_down = tiles.num_blocks * tiles.num_n;
    for (int64_t i = pool.NextTask(2); i < num_down; i = pool.NextTask(2)) {
      RunDownTile(call, tiles, i, scratch);
    }
  });
}

}  // namespace lastflop
