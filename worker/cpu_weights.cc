#include "worker/cpu_weights.h"

#include <numeric>
#include <utility>

#include "common/status_macros.h"
#include "kernels/embedding/embedding.h"

namespace lastflop {

absl::StatusOr<CpuWeights> CpuWeights::Describe(const WeightPlace& place) {
  LASTFLOP_ASSIGN_OR_RETURN(
      PackedLayout layout,
      PackedLayout::Describe(place.storage, place.num_matrices, place.part_rows, place.cols));
  LASTFLOP_RETURN_IF_ERROR(CheckSlice(place.slice, layout));
  return CpuWeights(place.slice, std::move(layout), nullptr);
}

absl::StatusOr<CpuWeights> CpuWeights::Load(const WeightPlace& place, CpuBufferStore& store,
                                            ThreadPool& pool) {
  if (place.form == WeightForm::kPacked) {
    LASTFLOP_ASSIGN_OR_RETURN(
        PackedLayout layout,
        PackedLayout::Create(place.storage, place.num_matrices, place.part_rows, place.cols));
    LASTFLOP_RETURN_IF_ERROR(CheckSlice(place.slice, layout));
    LASTFLOP_ASSIGN_OR_RETURN(auto buffer,
                              store.Get(place.Key(), layout.bytes(), [&](AlignedBuffer& memory) {
                                FillRandomWeights(place.slice, layout, memory.data(), pool);
                                return absl::OkStatus();
                              }));
    return CpuWeights(place.slice, std::move(layout), std::move(buffer));
  }
  const int64_t rows = std::accumulate(place.part_rows.begin(), place.part_rows.end(), int64_t{0});
  const auto count = static_cast<size_t>(rows * place.cols);
  LASTFLOP_ASSIGN_OR_RETURN(
      auto buffer, store.Get(place.Key(), count * sizeof(Bf16), [&](AlignedBuffer& memory) {
        size_t offset = 0;
        for (size_t part = 0; part < place.part_rows.size(); ++part) {
          WeightSlice slice = place.slice;
          slice.part_row_begin = {place.slice.part_row_begin[part]};
          const auto size = static_cast<size_t>(place.part_rows[part] * place.cols);
          FillRandomRows(slice, memory.As<Bf16>(size, offset * sizeof(Bf16)), pool);
          offset += size;
        }
        return absl::OkStatus();
      }));
  return CpuWeights(place.slice, PackedLayout{}, std::move(buffer));
}

std::span<const Bf16> CpuWeights::rows() const {
  return {reinterpret_cast<const Bf16*>(buffer_->data()), buffer_->bytes() / sizeof(Bf16)};
}

}  // namespace lastflop
