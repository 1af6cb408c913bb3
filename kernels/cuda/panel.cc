#include "kernels/cuda/panel.h"

#include "absl/strings/str_cat.h"
#include "common/words.h"

namespace lastflop {

absl::StatusOr<WeightFormat> PanelFormatOf(const WeightStorage& storage) {
  const WeightStorage usual = StorageOf(storage.format);
  const int64_t group = storage.group_size > 0 ? storage.group_size : usual.group_size;
  const int64_t rows = storage.block_rows > 0 ? storage.block_rows : usual.block_rows;
  switch (storage.format) {
    case WeightFormat::kBf16:
      return WeightFormat::kBf16;
    case WeightFormat::kInt4G32:
    case WeightFormat::kInt4G128:
      if (group == 32 || group == 128) {
        return group == 32 ? WeightFormat::kInt4G32 : WeightFormat::kInt4G128;
      }
      break;
    case WeightFormat::kFp8Block:
    case WeightFormat::kNvfp4:
    case WeightFormat::kMxfp4:
      if (group == usual.group_size && rows == usual.block_rows) {
        return storage.format;
      }
      break;
    default:
      return absl::UnimplementedError(
          absl::StrCat(ToWord(storage.format),
                       ": the CUDA backend has weights in bf16, fp8_block, int4_g32, int4_g128, "
                       "nvfp4 and mxfp4"));
  }
  return absl::UnimplementedError(
      absl::StrCat(ToWord(storage.format), " with ", group, " weights a scale",
                   rows > 0 ? absl::StrCat(" and ", rows, " rows") : "",
                   ": the CUDA backend has int4 in groups of 32 and 128, fp8 in blocks of 128 x "
                   "128, nvfp4 in groups of 16 and mxfp4 of 32"));
}

}  // namespace lastflop
