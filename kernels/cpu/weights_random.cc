#include "kernels/cpu/weights_random.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "kernels/cpu/fp8_panel.h"
#include "kernels/cpu/panel_format.h"
#include "kernels/cpu/weights_random_builds.h"
#include "kernels/fp4.h"

namespace lastflop {
namespace {

// Row of the full matrix that output feature `row` of the slice is.
int64_t FullRow(const WeightSlice& slice, const PackedLayout& layout, int64_t row) {
  size_t part = 0;
  while (row >= layout.part_rows[part]) {
    row -= layout.part_rows[part];
    ++part;
  }
  return slice.part_row_begin[part] + row;
}

// Index in the full tensor of the slice's first column of a row.
uint64_t RowIndex(const WeightSlice& slice, const PackedLayout& layout, int64_t matrix,
                  int64_t row) {
  const int64_t full_row =
      (slice.first_matrix + matrix) * slice.rows_full + FullRow(slice, layout, row);
  return static_cast<uint64_t>(full_row * slice.cols_full + slice.col_begin);
}

// out[i] = the true weight of index + i. Four weights share a draw.
void TrueWeights(const WeightSlice& slice, uint64_t index, std::span<float> out) {
  size_t i = 0;
  for (; i < out.size() && (index + i) % 4 != 0; ++i) {
    out[i] = TrueWeight(slice.seed, slice.stream, index + i, slice.amplitude);
  }
  const float unit = slice.amplitude * 0x1.0p-15f;
  for (; i + 4 <= out.size(); i += 4) {
    const uint64_t bits = CounterRandom(slice.seed, slice.stream, (index + i) / 4);
    for (size_t j = 0; j < 4; ++j) {
      const auto centered = static_cast<int32_t>((bits >> (16 * j)) & 0xFFFF) - 32768;
      out[i + j] = static_cast<float>(centered) * unit;
    }
  }
  for (; i < out.size(); ++i) {
    out[i] = TrueWeight(slice.seed, slice.stream, index + i, slice.amplitude);
  }
}

// A stretch of columns of all rows of a panel: one group of int4, or up to 64 columns of bf16.
constexpr int64_t kMaxStretch = 128;
using Stretch = float[kPanelRows][kMaxStretch];

void PackBf16(const Stretch& weights, int64_t num_rows, int64_t cols, std::byte* out) {
  for (int64_t c = 0; c < cols; c += 2) {
    uint32_t lanes[kPanelRows] = {};
    for (int64_t row = 0; row < num_rows; ++row) {
      const uint32_t upper = c + 1 < cols ? ToBf16(weights[row][c + 1]).bits : 0u;
      lanes[row] = ToBf16(weights[row][c]).bits | (upper << 16);
    }
    std::memcpy(out + c / 2 * kBf16PairBytes, lanes, sizeof(lanes));
  }
}

void PackInt4(const Stretch& weights, int64_t num_rows, int64_t group, std::byte* out) {
  Bf16 scales[kPanelRows] = {};
  float inverse[kPanelRows] = {};
  uint32_t lanes[kMaxStretch / 8][kPanelRows];
  for (int64_t row = 0; row < kPanelRows; ++row) {
    const auto r = static_cast<size_t>(row);
    if (row < num_rows) {
      scales[r] = Int4Scale({weights[row], static_cast<size_t>(group)});
      inverse[r] = ToFloat(scales[r]);
    }
    for (int64_t block = 0; block < group / 8; ++block) {
      uint32_t lane = 0x88888888u;  // Eight zeros.
      if (inverse[r] != 0) {
        lane = 0;
        for (int64_t c = 0; c < 8; ++c) {
          const float value =
              std::clamp(std::nearbyint(weights[row][block * 8 + c] / inverse[r]), -8.0f, 7.0f);
          const auto nibble = static_cast<uint32_t>(static_cast<int>(value) + 8);
          lane |= nibble << (c / 2 * 4 + c % 2 * 16);
        }
      }
      lanes[block][row] = lane;
    }
  }
  std::memcpy(out, lanes, static_cast<size_t>(group / 8 * kInt4BlockBytes));
  std::memcpy(out + group / 8 * kInt4BlockBytes, scales, sizeof(scales));
}

#if defined(LASTFLOP_HAVE_AVX2)
// A stretch of a panel with the AVX2 build; false when it has not the form that build needs.
bool FillStretchAvx2(const WeightSlice& slice, int64_t group, const uint64_t* index,
                     int64_t num_rows, uint64_t begin, int64_t cols, std::byte* out) {
  if (num_rows < kPanelRows || cols % 8 != 0) {
    return false;
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    if ((index[row] + begin) % 4 != 0) {
      return false;
    }
  }
  auto* lanes = reinterpret_cast<uint32_t*>(out);
  auto* scales = reinterpret_cast<Bf16*>(out + group / 8 * kInt4BlockBytes);
  for (int64_t row = 0; row < num_rows; ++row) {
    const RowDraws draws = {.seed = slice.seed,
                            .stream = slice.stream,
                            .first_draw = (index[row] + begin) / 4,
                            .unit = slice.amplitude * 0x1.0p-15f};
    if (group > 0) {
      FillInt4RowAvx2(draws, group, lanes + row, scales + row);
    } else {
      FillBf16RowAvx2(draws, cols, lanes + row);
    }
  }
  return true;
}
#endif

// True weights lie within the amplitude, so it stands for the largest of every block: no rank then
// needs the rest of a block that its slice cuts.
void FillFp8Panel(const WeightSlice& slice, const PackedLayout& layout, int64_t matrix, int64_t p,
                  std::byte* panel) {
  const PackedLayout::Panel& range = layout.panels[static_cast<size_t>(p)];
  const float scale = Fp8Scale(slice.amplitude);
  std::memset(panel, 0, static_cast<size_t>(layout.panel_bytes));
  std::vector<float> weights(static_cast<size_t>(layout.cols));
  for (int64_t row = 0; row < range.num_rows; ++row) {
    TrueWeights(slice, RowIndex(slice, layout, matrix, range.first_row + row), weights);
    for (int64_t c = 0; c < layout.cols; ++c) {
      if (c % layout.scale_cols == 0) {
        *Fp8ScaleAt(layout, panel, row, c) = scale;
      }
      *Fp8At(layout, panel, row, c) = Fp8Quantize(weights[static_cast<size_t>(c)], scale);
    }
  }
}

void FillPanel(const WeightSlice& slice, const PackedLayout& layout, int64_t matrix, int64_t p,
               std::byte* panel, [[maybe_unused]] VectorIsa isa) {
  const PackedLayout::Panel& range = layout.panels[static_cast<size_t>(p)];
  const int64_t group = layout.storage.group_size;
  const int64_t step = group > 0 ? group : 64;
  uint64_t index[kPanelRows] = {};
  for (int64_t row = 0; row < range.num_rows; ++row) {
    index[row] = RowIndex(slice, layout, matrix, range.first_row + row);
  }
  Stretch weights;
  for (int64_t begin = 0; begin < layout.cols; begin += step) {
    const int64_t cols = std::min(step, layout.cols - begin);
    std::byte* out =
        panel + (group > 0 ? begin / group * Int4GroupBytes(group) : begin / 2 * kBf16PairBytes);
#if defined(LASTFLOP_HAVE_AVX2)
    if (isa == VectorIsa::kAvx2 && FillStretchAvx2(slice, group, index, range.num_rows,
                                                   static_cast<uint64_t>(begin), cols, out)) {
      continue;
    }
#endif
    for (int64_t row = 0; row < range.num_rows; ++row) {
      TrueWeights(slice, index[row] + static_cast<uint64_t>(begin),
                  {weights[row], static_cast<size_t>(cols)});
    }
    if (group > 0) {
      PackInt4(weights, range.num_rows, group, out);
    } else {
      PackBf16(weights, range.num_rows, cols, out);
    }
  }
}

// The true weights of a row as fp4 stores them. The amplitude stands for the tensor's largest.
void RoundToFp4(WeightFormat format, float amplitude, std::span<float> row) {
  const auto group = static_cast<size_t>(StorageOf(format).group_size);
  const float of_tensor = Nvfp4TensorScale(amplitude);
  for (size_t begin = 0; begin < row.size(); begin += group) {
    const std::span<float> weights = row.subspan(begin, group);
    float absmax = 0;
    for (const float weight : weights) {
      absmax = std::max(absmax, std::abs(weight));
    }
    const float scale = format == WeightFormat::kNvfp4
                            ? Nvfp4ScaleValue(Nvfp4GroupScale(absmax, of_tensor)) * of_tensor
                            : Mxfp4ScaleValue(Mxfp4GroupScale(absmax));
    for (float& weight : weights) {
      weight = Fp4Value(Fp4CodeOf(weight, scale)) * scale;
    }
  }
}

}  // namespace

absl::Status CheckSlice(const WeightSlice& slice, const PackedLayout& layout) {
  if (slice.part_row_begin.size() != layout.part_rows.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("a weight slice with ", slice.part_row_begin.size(), " parts for a layout of ",
                     layout.part_rows.size()));
  }
  for (size_t part = 0; part < layout.part_rows.size(); ++part) {
    const int64_t begin = slice.part_row_begin[part];
    if (begin < 0 || begin + layout.part_rows[part] > slice.rows_full) {
      return absl::InvalidArgumentError(absl::StrCat(
          "weight rows [", begin, ", ", begin + layout.part_rows[part], ") of ", slice.rows_full));
    }
  }
  if (slice.first_matrix < 0 || slice.col_begin < 0 ||
      slice.col_begin + layout.cols > slice.cols_full) {
    return absl::InvalidArgumentError(absl::StrCat("weight columns [", slice.col_begin, ", ",
                                                   slice.col_begin + layout.cols, ") of ",
                                                   slice.cols_full));
  }
  return absl::OkStatus();
}

void FillRandomWeights(const WeightSlice& slice, const PackedLayout& layout, std::byte* data,
                       ThreadPool& pool) {
  const int64_t num_panels = layout.num_panels();
  pool.ParallelFor(layout.num_matrices * num_panels, [&](int64_t task, int /*thread*/) {
    const int64_t matrix = task / num_panels;
    const int64_t p = task % num_panels;
    if (IsFp8(layout.storage)) {
      FillFp8Panel(slice, layout, matrix, p, data + layout.PanelOffset(matrix, p));
      return;
    }
    FillPanel(slice, layout, matrix, p, data + layout.PanelOffset(matrix, p), pool.isa());
  });
}

void TrueWeightRow(const WeightSlice& slice, const PackedLayout& layout, int64_t matrix,
                   int64_t row, std::span<float> out) {
  TrueWeights(slice, RowIndex(slice, layout, matrix, row), out);
}

void ReferenceWeightRow(const WeightSlice& slice, const PackedLayout& layout, int64_t matrix,
                        int64_t row, std::span<float> out) {
  assert(static_cast<int64_t>(out.size()) == layout.cols);
  const uint64_t index = RowIndex(slice, layout, matrix, row);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = TrueWeight(slice.seed, slice.stream, index + i, slice.amplitude);
  }
  if (IsFp8(layout.storage)) {
    const float scale = Fp8Scale(slice.amplitude);
    for (float& weight : out) {
      weight = ToFloat(Fp8Quantize(weight, scale)) * scale;
    }
    return;
  }
  if (IsFp4(layout.storage)) {
    RoundToFp4(layout.storage.format, slice.amplitude, out);
    return;
  }
  const auto group = static_cast<size_t>(layout.storage.group_size);
  if (group == 0) {
    for (float& weight : out) {
      weight = RoundToBf16(weight);
    }
    return;
  }
  for (size_t begin = 0; begin < out.size(); begin += group) {
    const std::span<float> weights = out.subspan(begin, group);
    const Bf16 scale = Int4Scale(weights);
    for (float& weight : weights) {
      weight = static_cast<float>(Int4Quantize(weight, scale)) * ToFloat(scale);
    }
  }
}

}  // namespace lastflop
