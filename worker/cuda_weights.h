#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/attention/kv_cache.h"
#include "kernels/cuda/panel.h"
#include "kernels/cuda/weight_slice.h"
#include "step/shapes.h"
#include "worker/cuda_step.h"
#include "worker/weight_place.h"

// Weights and caches on the device, made there from the same true values as on the CPU.
namespace lastflop {

// The place as kernels take it. Unimplemented for a format that has no CUDA kernels.
absl::StatusOr<CudaWeightSlice> CudaSliceOf(const WeightPlace& place);

// How the panels of an expert weight are ordered.
CudaRowOrder RowOrderOf(Weight weight);

// Bytes of an expert weight as panels.
absl::StatusOr<size_t> CudaPanelBytes(const WeightPlace& place);

// Plain rows, for cuBLASLt, tables, gains and biases; panels, for expert kernels. Filling is
// enqueued on the stream.
absl::StatusOr<CudaBufferStore::Shared> LoadCudaRows(const WeightPlace& place,
                                                     CudaBufferStore& store, cudaStream_t stream);
absl::StatusOr<CudaBufferStore::Shared> LoadCudaPanels(const WeightPlace& place,
                                                       CudaBufferStore& store, cudaStream_t stream);

// Key of the buffer that separately dequantized weights are written to.
std::string CopiesKey(Weight weight, size_t bytes);

// The cache of a layer: keys, then for GQA values. The places of new tokens are zero.
absl::StatusOr<CudaBufferStore::Shared> LoadCudaCache(const AttentionShape& shape,
                                                      const KvSlice& slice, int layer,
                                                      const WeightData& data,
                                                      CudaBufferStore& store, cudaStream_t stream);

}  // namespace lastflop
