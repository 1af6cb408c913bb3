#include "worker/cuda_weights.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/attention/kv_cache_cuda.h"
#include "kernels/cuda/weights_random_cuda.h"
#include "worker/kv_place.h"

namespace lastflop {
namespace {

constexpr size_t kBf16 = 2;

}  // namespace

absl::StatusOr<CudaWeightSlice> CudaSliceOf(const WeightPlace& place) {
  CudaWeightSlice slice{.seed = place.slice.seed,
                        .stream = place.slice.stream,
                        .amplitude = place.slice.amplitude,
                        .rows_full = place.slice.rows_full,
                        .cols_full = place.slice.cols_full,
                        .first_matrix = place.slice.first_matrix,
                        .num_matrices = place.num_matrices,
                        .num_parts = static_cast<int>(place.part_rows.size()),
                        .col_begin = place.slice.col_begin,
                        .cols = place.cols};
  for (size_t part = 0; part < place.part_rows.size(); ++part) {
    slice.part_rows[part] = place.part_rows[part];
    slice.part_row_begin[part] = place.slice.part_row_begin[part];
  }
  LASTFLOP_ASSIGN_OR_RETURN(slice.format, PanelFormatOf(place.storage));
  return slice;
}

CudaRowOrder RowOrderOf(Weight weight) {
  return weight == Weight::kExpertGateUp ? CudaRowOrder::kGateAndUp : CudaRowOrder::kPlain;
}

absl::StatusOr<size_t> CudaPanelBytes(const WeightPlace& place) {
  LASTFLOP_ASSIGN_OR_RETURN(const CudaWeightSlice slice, CudaSliceOf(place));
  return static_cast<size_t>(PanelBytes(slice));
}

absl::StatusOr<CudaBufferStore::Shared> LoadCudaRows(const WeightPlace& place,
                                                     CudaBufferStore& store, cudaStream_t stream) {
  LASTFLOP_ASSIGN_OR_RETURN(const CudaWeightSlice slice, CudaSliceOf(place));
  if (slice.format != WeightFormat::kBf16) {
    return absl::InternalError(
        absl::StrCat("weights in ", ToWord(place.storage.format), " have no plain rows"));
  }
  WeightPlace rows = place;
  rows.form = WeightForm::kRows;  // Of every form on the device: a tied head reads the table.
  const auto bytes = static_cast<size_t>(slice.num_matrices * slice.rows() * slice.cols) * kBf16;
  return store.Get(rows.Key(), bytes, [&](DeviceBuffer& buffer) {
    return LaunchFillRows(slice, buffer.As<__nv_bfloat16>(), stream);
  });
}

absl::StatusOr<CudaBufferStore::Shared> LoadCudaPanels(const WeightPlace& place,
                                                       CudaBufferStore& store,
                                                       cudaStream_t stream) {
  LASTFLOP_ASSIGN_OR_RETURN(const CudaWeightSlice slice, CudaSliceOf(place));
  LASTFLOP_RETURN_IF_ERROR(CheckPanels(slice, RowOrderOf(place.weight)));
  return store.Get(place.Key(), static_cast<size_t>(PanelBytes(slice)), [&](DeviceBuffer& buffer) {
    return LaunchFillPanels(slice, RowOrderOf(place.weight), buffer.data(), stream);
  });
}

std::string CopiesKey(Weight weight, size_t bytes) {
  return absl::StrCat("dequantized ", static_cast<int>(weight), " bytes ", bytes);
}

absl::StatusOr<CudaBufferStore::Shared> LoadCudaCache(const AttentionShape& shape,
                                                      const KvSlice& slice, int layer,
                                                      const WeightData& data,
                                                      CudaBufferStore& store, cudaStream_t stream) {
  const auto key_bytes = static_cast<size_t>(CacheElements(shape) * CacheElementBytes(shape.cache));
  const size_t bytes = shape.kind == AttentionKind::kGqa ? 2 * key_bytes : key_bytes;
  const std::string key = KvCacheKey(shape, slice, layer, data.zeros);
  return store.Get(key, bytes, [&](DeviceBuffer& buffer) -> absl::Status {
    LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(buffer.data(), 0, bytes, stream),
                                  "zeroing a cache");
    if (data.zeros || shape.context == 0) {
      return absl::OkStatus();
    }
    DeviceKvCache cache{.keys = buffer.data()};
    if (bytes > key_bytes) {
      cache.values = buffer.data() + key_bytes;
    }
    return LaunchFillRandomCache(shape, slice, layer, data.seed, cache, stream);
  });
}

}  // namespace lastflop
