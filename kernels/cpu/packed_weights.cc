#include "kernels/cpu/packed_weights.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cpu/fp8_panel.h"
#include "kernels/cpu/panel_format.h"

namespace lastflop {
namespace {

constexpr int64_t kAlignment = 64;

// Panel and row in it of output feature `row`.
std::pair<int64_t, int64_t> FindRow(const PackedLayout& layout, int64_t row) {
  const auto after = std::upper_bound(
      layout.panels.begin(), layout.panels.end(), row,
      [](int64_t value, const PackedLayout::Panel& panel) { return value < panel.first_row; });
  const auto panel = after - 1;
  return {panel - layout.panels.begin(), row - panel->first_row};
}

// GetWeight() of a whole row, lane by lane: references unpack millions of weights.
void UnpackInt4Row(const PackedLayout& layout, const std::byte* panel, int64_t row,
                   std::span<float> out) {
  const int64_t group = layout.storage.group_size;
  float* value = out.data();
  for (int64_t begin = 0; begin < layout.cols; begin += group) {
    const float scale = GetInt4Scale(group, panel, row, begin);
    for (int64_t c = begin; c < begin + group; c += 8) {
      uint32_t lane = 0;
      std::memcpy(&lane, Int4HalfAt(group, const_cast<std::byte*>(panel), row, c), sizeof(lane));
      for (int pair = 0; pair < 4; ++pair) {
        *value++ = static_cast<float>(static_cast<int>((lane >> (4 * pair)) & 0xFU) - 8) * scale;
        *value++ =
            static_cast<float>(static_cast<int>((lane >> (16 + 4 * pair)) & 0xFU) - 8) * scale;
      }
    }
  }
}

}  // namespace

int64_t GroupSizeOf(const WeightStorage& storage) {
  switch (storage.format) {
    case WeightFormat::kInt4G32:
      return storage.group_size > 0 ? storage.group_size : 32;
    case WeightFormat::kInt4G128:
      return storage.group_size > 0 ? storage.group_size : 128;
    default:
      return 0;
  }
}

bool IsFp4(const WeightStorage& storage) {
  return storage.format == WeightFormat::kNvfp4 || storage.format == WeightFormat::kMxfp4;
}

bool IsFp8(const WeightStorage& storage) {
  return storage.format == WeightFormat::kFp8 || storage.format == WeightFormat::kFp8Block;
}

absl::Status CheckCpuWeightFormat(const WeightStorage& storage) {
  switch (storage.format) {
    case WeightFormat::kBf16:
    case WeightFormat::kFp8:
    case WeightFormat::kFp8Block:
      return absl::OkStatus();
    case WeightFormat::kInt4G32:
    case WeightFormat::kInt4G128:
      if (const int64_t group = GroupSizeOf(storage); group != 32 && group != 128) {
        return absl::UnimplementedError(absl::StrCat(
            "int4 with group size ", group, ": the CPU backend has group sizes 32 and 128"));
      }
      return absl::OkStatus();
    default:
      return absl::UnimplementedError(absl::StrCat(
          ToWord(storage.format),
          ": the CPU backend has weights in bf16, fp8_block, fp8, int4_g32, int4_g128"));
  }
}

absl::StatusOr<PackedLayout> PackedLayout::Describe(const WeightStorage& storage,
                                                    int64_t num_matrices,
                                                    std::vector<int64_t> part_rows, int64_t cols) {
  if (!IsFp4(storage)) {
    LASTFLOP_RETURN_IF_ERROR(CheckCpuWeightFormat(storage));
  }
  if (num_matrices < 1 || part_rows.empty() || cols < 1 ||
      *std::min_element(part_rows.begin(), part_rows.end()) < 1) {
    return absl::InvalidArgumentError("packing weights: every size must be at least 1");
  }
  PackedLayout layout;
  layout.storage = storage;
  layout.storage.group_size = GroupSizeOf(storage);
  layout.num_matrices = num_matrices;
  layout.cols = cols;
  layout.rows = std::accumulate(part_rows.begin(), part_rows.end(), int64_t{0});
  layout.part_rows = std::move(part_rows);
  const int64_t group =
      IsFp4(storage) ? StorageOf(storage.format).group_size : layout.storage.group_size;
  if (group > 0 && cols % group != 0) {
    return absl::InvalidArgumentError(absl::StrCat("in_features ", cols, " in groups of ", group,
                                                   ": ", cols, " mod ", group, " = ",
                                                   cols % group));
  }
  if (IsFp8(storage)) {
    const bool is_block = storage.format == WeightFormat::kFp8Block;
    const WeightStorage usual = StorageOf(WeightFormat::kFp8Block);
    const int64_t block_cols = storage.group_size > 0 ? storage.group_size : usual.group_size;
    layout.scale_cols = is_block ? block_cols : cols;
    layout.storage.block_rows =
        !is_block ? 1 : (storage.block_rows > 0 ? storage.block_rows : usual.block_rows);
  }
  return layout;
}

absl::StatusOr<PackedLayout> PackedLayout::Create(const WeightStorage& storage,
                                                  int64_t num_matrices,
                                                  std::vector<int64_t> part_rows, int64_t cols) {
  LASTFLOP_RETURN_IF_ERROR(CheckCpuWeightFormat(storage));
  LASTFLOP_ASSIGN_OR_RETURN(PackedLayout layout,
                            Describe(storage, num_matrices, std::move(part_rows), cols));
  int64_t first_row = 0;
  for (const int64_t rows : layout.part_rows) {
    for (int64_t row = 0; row < rows; row += kPanelRows) {
      layout.panels.push_back(
          {.first_row = first_row + row, .num_rows = std::min(kPanelRows, rows - row)});
    }
    first_row += rows;
  }
  const int64_t group = layout.storage.group_size;
  layout.panel_bytes = IsFp8(storage) ? Fp8PanelBytes(cols, layout.scale_cols)
                       : group > 0    ? cols / group * Int4GroupBytes(group)
                                      : (cols + 1) / 2 * kBf16PairBytes;
  layout.matrix_bytes =
      (layout.num_panels() * layout.panel_bytes + kAlignment - 1) / kAlignment * kAlignment;
  return layout;
}

Bf16 Int4Scale(std::span<const float> weights) {
  float max = 0;
  for (const float weight : weights) {
    max = std::max(max, std::abs(weight));
  }
  return ToBf16(max / 7.0f);
}

int Int4Quantize(float weight, Bf16 scale) {
  const float divisor = ToFloat(scale);
  if (divisor == 0) {
    return 0;
  }
  return static_cast<int>(std::clamp(std::nearbyint(weight / divisor), -8.0f, 7.0f));
}

void PackMatrix(const PackedLayout& layout, int64_t matrix, std::span<const float> values,
                std::byte* data) {
  assert(static_cast<int64_t>(values.size()) == layout.rows * layout.cols);
  if (IsFp8(layout.storage)) {
    PackFp8Matrix(layout, matrix, values, data);
    return;
  }
  const auto cols = static_cast<size_t>(layout.cols);
  const auto group = static_cast<size_t>(layout.storage.group_size);
  for (int64_t p = 0; p < layout.num_panels(); ++p) {
    std::byte* panel = data + layout.PanelOffset(matrix, p);
    std::memset(panel, 0, static_cast<size_t>(layout.panel_bytes));
    for (int64_t row = 0; row < kPanelRows; ++row) {
      if (row >= layout.panels[static_cast<size_t>(p)].num_rows) {
        ZeroRow(layout, row, panel);
        continue;
      }
      const int64_t feature = layout.panels[static_cast<size_t>(p)].first_row + row;
      const std::span<const float> weights =
          values.subspan(static_cast<size_t>(feature) * cols, cols);
      if (group == 0) {
        for (size_t c = 0; c < cols; ++c) {
          PutBf16(panel, row, static_cast<int64_t>(c), ToBf16(weights[c]));
        }
        continue;
      }
      for (size_t begin = 0; begin < cols; begin += group) {
        const Bf16 scale = Int4Scale(weights.subspan(begin, group));
        PutInt4Scale(layout.storage.group_size, panel, row, static_cast<int64_t>(begin), scale);
        for (size_t c = begin; c < begin + group; ++c) {
          PutInt4(layout.storage.group_size, panel, row, static_cast<int64_t>(c),
                  Int4Quantize(weights[c], scale));
        }
      }
    }
  }
}

void UnpackRow(const PackedWeights& weights, int64_t matrix, int64_t row, std::span<float> out) {
  const PackedLayout& layout = *weights.layout;
  assert(static_cast<int64_t>(out.size()) == layout.cols && row < layout.rows);
  const auto [p, row_in_panel] = FindRow(layout, row);
  const std::byte* panel = weights.Panel(matrix, p);
  if (layout.storage.group_size > 0) {
    UnpackInt4Row(layout, panel, row_in_panel, out);
    return;
  }
  for (int64_t c = 0; c < layout.cols; ++c) {
    out[static_cast<size_t>(c)] = IsFp8(layout.storage)
                                      ? GetFp8Weight(layout, panel, row_in_panel, c)
                                      : GetWeight(layout, panel, row_in_panel, c);
  }
}

}  // namespace lastflop
