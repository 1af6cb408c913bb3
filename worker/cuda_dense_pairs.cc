#include "worker/cuda_dense_pairs.h"

#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/compare_cuda.h"

namespace lastflop {
namespace {

// Tiles of 8 and 32 have builds that split the input features among the warps of a block, so that
// the few rows of one matrix make work for all multiprocessors.
constexpr int64_t kMostTokensOfNarrowTiles = 16;

}  // namespace

absl::StatusOr<CudaDensePairs> CudaDensePairs::Create(int64_t num_tokens, cudaStream_t stream) {
  const PermuteShape all = {
      .num_tokens = num_tokens, .top_k = 1, .num_experts = 1, .num_local_experts = 1};
  LASTFLOP_RETURN_IF_ERROR(CheckPermuteCuda(all));
  const int tile_tokens = num_tokens <= kMostTokensOfNarrowTiles ? 8 : 32;
  CudaDensePairs dense;
  LASTFLOP_ASSIGN_OR_RETURN(
      dense.memory, DeviceBuffer::Create(static_cast<size_t>(PairsBytes(all, tile_tokens))));
  LASTFLOP_RETURN_IF_ERROR(
      LaunchPoison(dense.memory.data(), static_cast<int64_t>(dense.memory.bytes()), stream));
  dense.pairs = PlacePairs(all, tile_tokens, dense.memory.data());
  // Every token's expert is 0, and so is its weight, which nobody reads.
  const size_t bytes = static_cast<size_t>(num_tokens) * sizeof(int32_t);
  LASTFLOP_ASSIGN_OR_RETURN(const DeviceBuffer zeros, DeviceBuffer::Create(bytes));
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaMemsetAsync(zeros.data(), 0, bytes, stream),
                                "zeroing expert ids");
  LASTFLOP_RETURN_IF_ERROR(
      LaunchPermute(all, zeros.As<int32_t>(), zeros.As<float>(), dense.pairs, stream));
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream), "listing the tokens of a product");
  return dense;
}

ExpertGemmShape OneExpertOf(const GemmShape& shape) {
  return {.num_tokens = shape.num_tokens,
          .top_k = 1,
          .num_local_experts = 1,
          .out_features = shape.out_features,
          .in_features = shape.in_features,
          .storage = shape.storage};
}

}  // namespace lastflop
