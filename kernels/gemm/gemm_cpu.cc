#include <algorithm>
#include <cassert>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/panel_gemm.h"
#include "kernels/cpu/row_ops.h"
#include "kernels/gemm/gemm.h"

namespace lastflop {
namespace {

// Panels and prepared tokens of a tile share half of a 512 KiB L2.
constexpr int64_t kTileWeightBytes = 128 << 10;
constexpr int64_t kTileTokenBytes = 128 << 10;

// Few tokens are prepared by every thread for itself, which is cheaper than a meeting.
constexpr int64_t kOwnCopyBytes = 64 << 10;

struct Tiling {
  int64_t row_bytes = 0;
  int64_t tokens = 0;  // Of a tile.
  int64_t panels = 0;
  int64_t token_splits = 1;  // A narrow matrix is divided over tokens as well.
  bool own_copies = false;
};

Tiling TilingOf(const GemmShape& shape, const PackedLayout& layout, int num_threads) {
  Tiling tiling;
  tiling.row_bytes = PreparedRowBytes(layout);
  // Multiples of 6 rows, which PanelGemm does at once; a tile of output fits a thread's scratch.
  tiling.tokens = std::clamp<int64_t>(kTileTokenBytes / tiling.row_bytes / 6 * 6, 6, 96);
  const int64_t by_cache = std::max<int64_t>(1, kTileWeightBytes / layout.panel_bytes);
  const int64_t by_balance = std::max<int64_t>(1, layout.num_panels() / (8 * num_threads));
  tiling.panels = std::min(by_cache, by_balance);
  const int64_t num_tiles = (layout.num_panels() + tiling.panels - 1) / tiling.panels;
  const int64_t token_tiles = (shape.num_tokens + tiling.tokens - 1) / tiling.tokens;
  tiling.token_splits =
      std::clamp<int64_t>(4 * num_threads / num_tiles, 1, std::max<int64_t>(1, token_tiles));
  tiling.own_copies = shape.num_tokens * tiling.row_bytes <= kOwnCopyBytes;
  return tiling;
}

struct Output {
  Bf16* bf16 = nullptr;
  float* fp32 = nullptr;
  const Bf16* bias = nullptr;
};

// Adds the bias to a tile [num_rows, 16] and stores it at token `token`.
void StoreTile(const Output& output, float* tile, int64_t num_rows, int64_t token,
               const PackedLayout::Panel& panel, int64_t out_features, VectorIsa isa) {
  if (output.bias != nullptr) {
    for (int64_t i = 0; i < num_rows; ++i) {
      for (int64_t j = 0; j < panel.num_rows; ++j) {
        tile[i * kPanelRows + j] += ToFloat(output.bias[panel.first_row + j]);
      }
    }
  }
  const int64_t at = token * out_features + panel.first_row;
  if (output.bf16 != nullptr) {
    StorePanel(tile, num_rows, panel.num_rows, output.bf16 + at, out_features, isa);
    return;
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    std::memcpy(output.fp32 + at + i * out_features, tile + i * kPanelRows,
                static_cast<size_t>(panel.num_rows) * sizeof(float));
  }
}

void RunGemm(const GemmShape& shape, const PackedWeights& weights, std::span<const Bf16> in,
             const Output& output, std::span<std::byte> workspace, ThreadPool& pool) {
  const PackedLayout& layout = *weights.layout;
  assert(layout.rows == shape.out_features && layout.cols == shape.in_features);
  const Tiling tiling = TilingOf(shape, layout, pool.num_threads());
  const int64_t stride = shape.in_stride > 0 ? shape.in_stride : shape.in_features;
  const int64_t num_tasks =
      (layout.num_panels() + tiling.panels - 1) / tiling.panels * tiling.token_splits;
  const auto prepare = [&](int64_t t, std::byte* prepared) {
    PrepareRow(layout, in.data() + shape.in_offset + t * stride, prepared + t * tiling.row_bytes,
               pool.isa());
  };
  const auto run_tile = [&](int64_t task, const std::byte* prepared, float* out) {
    const int64_t tile = task / tiling.token_splits;
    const int64_t split = task % tiling.token_splits;
    const int64_t end = std::min((tile + 1) * tiling.panels, layout.num_panels());
    const int64_t token_end = shape.num_tokens * (split + 1) / tiling.token_splits;
    for (int64_t t = shape.num_tokens * split / tiling.token_splits; t < token_end;
         t += tiling.tokens) {
      const PreparedRows rows = {.data = prepared + t * tiling.row_bytes,
                                 .row_bytes = tiling.row_bytes,
                                 .num_rows = std::min(tiling.tokens, token_end - t)};
      for (int64_t p = tile * tiling.panels; p < end; ++p) {
        PanelGemm(layout, weights.Panel(0, p), rows, out, pool.isa());
        StoreTile(output, out, rows.num_rows, t, layout.panels[static_cast<size_t>(p)],
                  shape.out_features, pool.isa());
      }
    }
  };
  pool.RunOnAll([&](int thread) {
    std::byte* const scratch = pool.Scratch(thread);
    auto* const out = reinterpret_cast<float*>(scratch);
    std::byte* prepared = workspace.data();
    if (tiling.own_copies) {
      prepared = scratch + tiling.tokens * kPanelRows * static_cast<int64_t>(sizeof(float));
      for (int64_t t = 0; t < shape.num_tokens; ++t) {
        prepare(t, prepared);
      }
    } else {
      for (int64_t t = pool.NextTask(0); t < shape.num_tokens; t = pool.NextTask(0)) {
        prepare(t, prepared);
      }
      pool.Barrier();
    }
    for (int64_t task = pool.NextTask(1); task < num_tasks; task = pool.NextTask(1)) {
      run_tile(task, prepared, out);
    }
  });
}

}  // namespace

absl::Status ValidateGemm(const GemmShape& shape) {
  if (shape.num_tokens < 0 || shape.out_features < 1 || shape.in_features < 1 ||
      shape.in_offset < 0 || (shape.in_stride != 0 && shape.in_stride < shape.in_features)) {
    return absl::InvalidArgumentError(
        absl::StrCat("gemm: num_tokens=", shape.num_tokens, " out_features=", shape.out_features,
                     " in_features=", shape.in_features, " in_stride=", shape.in_stride,
                     " in_offset=", shape.in_offset));
  }
  return CheckCpuWeightFormat(shape.storage);
}

int64_t GemmWorkspaceBytes(const GemmShape& shape, const PackedLayout& weights) {
  return shape.num_tokens * PreparedRowBytes(weights);
}

void Gemm(const GemmShape& shape, const PackedWeights& weights, std::span<const Bf16> in,
          std::span<const Bf16> bias, std::span<Bf16> out, std::span<std::byte> workspace,
          ThreadPool& pool) {
  assert(!shape.fp32_out &&
         out.size() >= static_cast<size_t>(shape.num_tokens * shape.out_features));
  RunGemm(shape, weights, in, {.bf16 = out.data(), .bias = shape.bias ? bias.data() : nullptr},
          workspace, pool);
}

void Gemm(const GemmShape& shape, const PackedWeights& weights, std::span<const Bf16> in,
          std::span<const Bf16> bias, std::span<float> out, std::span<std::byte> workspace,
          ThreadPool& pool) {
  assert(shape.fp32_out &&
         out.size() >= static_cast<size_t>(shape.num_tokens * shape.out_features));
  RunGemm(shape, weights, in, {.fp32 = out.data(), .bias = shape.bias ? bias.data() : nullptr},
          workspace, pool);
}

}  // namespace lastflop
