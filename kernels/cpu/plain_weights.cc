#include "kernels/cpu/plain_weights.h"

#include <cstring>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp8_panel.h"

namespace lastflop {
namespace {

constexpr size_t kScaleAlignment = 256;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

size_t RoundUp(int64_t bytes) {
  return (static_cast<size_t>(bytes) + kScaleAlignment - 1) / kScaleAlignment * kScaleAlignment;
}

// One row of weights at `out`, its scales at `scales`.
void StoreBf16(std::span<const float> row, std::byte* out) {
  for (size_t c = 0; c < row.size(); ++c) {
    const Bf16 value = ToBf16(row[c]);
    std::memcpy(out + c * sizeof(value), &value, sizeof(value));
  }
}

void StoreInt4(std::span<const float> row, size_t group, std::byte* out, std::byte* scales) {
  for (size_t begin = 0; begin < row.size(); begin += group) {
    const std::span<const float> weights = row.subspan(begin, group);
    const Bf16 scale = Int4Scale(weights);
    std::memcpy(scales + begin / group * sizeof(scale), &scale, sizeof(scale));
    for (size_t c = 0; c < group; c += 2) {
      const int low = Int4Quantize(weights[c], scale) + 8;
      const int high = Int4Quantize(weights[c + 1], scale) + 8;
      out[(begin + c) / 2] = static_cast<std::byte>(low | high << 4);
    }
  }
}

void StoreFp8(std::span<const float> row, float scale, std::byte* out) {
  for (size_t c = 0; c < row.size(); ++c) {
    out[c] = static_cast<std::byte>(Fp8Quantize(row[c], scale).bits);
  }
}

}  // namespace

absl::StatusOr<PlainLayout> PlainLayout::Create(const WeightStorage& storage, int64_t num_matrices,
                                                int64_t rows, int64_t cols) {
  const WeightStorage usual = StorageOf(storage.format);
  PlainLayout plain{.storage = storage, .num_matrices = num_matrices, .rows = rows, .cols = cols};
  plain.storage.group_size = storage.group_size > 0 ? storage.group_size : usual.group_size;
  plain.storage.block_rows = storage.block_rows > 0 ? storage.block_rows : usual.block_rows;
  const int64_t group = plain.storage.group_size;
  const int64_t count = num_matrices * rows * cols;
  int64_t scale_bytes = 0;
  switch (storage.format) {
    case WeightFormat::kBf16:
      plain.scale_begin = RoundUp(2 * count);
      return plain;
    case WeightFormat::kFp8Block:
      plain.scale_begin = RoundUp(count);
      scale_bytes = num_matrices * CeilDiv(rows, plain.storage.block_rows) * CeilDiv(cols, group) *
                    static_cast<int64_t>(sizeof(float));
      break;
    case WeightFormat::kInt4G32:
    case WeightFormat::kInt4G128:
      scale_bytes = count / group * static_cast<int64_t>(sizeof(Bf16));
      break;
    case WeightFormat::kNvfp4:
    case WeightFormat::kMxfp4:
      scale_bytes = count / group;
      break;
    default:
      return absl::UnimplementedError(
          absl::StrCat(ToWord(storage.format), ": weights of this format have no plain form"));
  }
  if (storage.format != WeightFormat::kFp8Block) {
    plain.scale_begin = RoundUp(count / 2);
    if (cols % group != 0) {
      return absl::InvalidArgumentError(absl::StrCat(cols, " columns of ", ToWord(storage.format),
                                                     " weights in groups of ", group, ": ",
                                                     cols % group, " are left over"));
    }
  }
  plain.scale_bytes = static_cast<size_t>(scale_bytes);
  return plain;
}

void FillPlainWeights(const WeightSlice& slice, const PackedLayout& layout,
                      const PlainLayout& plain, std::byte* data, ThreadPool& pool) {
  const bool is_fp8 = plain.storage.format == WeightFormat::kFp8Block;
  const auto cols = static_cast<size_t>(plain.cols);
  const auto group = static_cast<size_t>(plain.storage.group_size);
  // True weights lie within the amplitude, which stands for the largest of every fp8 block.
  const float fp8_scale = Fp8Scale(slice.amplitude);
  std::byte* const scales = data + plain.scale_begin;
  if (is_fp8) {
    for (size_t i = 0; i < plain.scale_bytes; i += sizeof(float)) {
      std::memcpy(scales + i, &fp8_scale, sizeof(float));
    }
  }
  pool.ParallelFor(plain.num_matrices * plain.rows, [&](int64_t task, int /*thread*/) {
    std::vector<float> row(cols);
    TrueWeightRow(slice, layout, task / plain.rows, task % plain.rows, row);
    const auto index = static_cast<size_t>(task);
    if (is_fp8) {
      StoreFp8(row, fp8_scale, data + index * cols);
    } else if (group > 0) {
      StoreInt4(row, group, data + index * (cols / 2),
                scales + index * (cols / group) * sizeof(Bf16));
    } else {
      StoreBf16(row, data + index * cols * sizeof(Bf16));
    }
  });
}

}  // namespace lastflop
