#pragma once

#include <algorithm>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/grouped_gemm/grouped_gemm.cuh"

// How the builds of the grouped GEMM are launched. One .cu a weight format.
namespace lastflop {

// Fills in what depends on the build and launches it. `stages` 0: as many as fit, up to 8.
template <typename T, int kBlocksPerSm>
absl::Status LaunchGroupedGemmBuild(GroupedGemmArguments p, int stages, cudaStream_t stream) {
  auto* kernel = grouped_gemm::GroupedGemmKernel<T, kBlocksPerSm>;
  int device = 0;
  int num_sms = 0;
  int block_limit = 0;
  int sm_limit = 0;
  constexpr char kDoing[] = "preparing grouped_gemm";
  LASTFLOP_CUDA_RETURN_IF_ERROR(cudaGetDevice(&device), kDoing);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&num_sms, cudaDevAttrMultiProcessorCount, device), kDoing);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&block_limit, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
      kDoing);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaDeviceGetAttribute(&sm_limit, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
      kDoing);
  // A block also takes 1 KB of the multiprocessor's memory for the system.
  const int limit = std::min(block_limit, sm_limit / kBlocksPerSm - 1024);
  const int most = (limit - T::SharedBytes(0)) / (T::SharedBytes(1) - T::SharedBytes(0));
  if (stages == 0) {
    stages = std::clamp(most, 2, 8);
  }
  const int bytes = T::SharedBytes(stages);
  if (stages < 2 || bytes > block_limit) {
    return absl::ResourceExhaustedError(absl::StrCat("grouped_gemm: stages=", stages, " needs ",
                                                     bytes, " B of shared memory, the device has ",
                                                     block_limit));
  }
  p.stages = stages;
  p.num_n = (p.row_blocks + T::kItemRowBlocks - 1) / T::kItemRowBlocks;
  const int64_t max_tasks = static_cast<int64_t>(p.max_tiles) * p.num_n;
  if (max_tasks + 64 * 65536 > INT32_MAX) {
    return absl::UnimplementedError(
        absl::StrCat("grouped_gemm: up to ", max_tasks, " work items, more than 31 bits count"));
  }
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), kDoing);
  LASTFLOP_CUDA_RETURN_IF_ERROR(
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                           cudaSharedmemCarveoutMaxShared),
      kDoing);
  const auto grid = static_cast<unsigned int>(
      std::clamp<int64_t>(max_tasks, 1, static_cast<int64_t>(num_sms) * kBlocksPerSm));
  return LaunchOverlapping("grouped_gemm", kernel, dim3(grid), grouped_gemm::kThreads, bytes,
                           stream, p);
}

// The builds of a format, by the tile of the pairs.
//   8 tokens: long rows of weights are split among the warps of a block, short ones are not. Split
//     ones make more and smaller work items, at the price of a reduction for each.
//   16, 32, 64: warps have rows of their own; all read the same activations.
//   32, where a format has Split32 (else void): long rows of few experts are split too. A dense
//     product, one expert, would leave most multiprocessors without work.
template <typename Split8, typename Whole8, typename Of16, typename Of32, typename Of64,
          typename Split32 = void>
absl::Status LaunchGroupedGemmFormat(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                     cudaStream_t stream) {
  switch (tile_tokens) {
    case 8: {
      // Rounds of all blocks of a GPU like the H200 below which whole items would leave too many of
      // them without work.
      constexpr int kBlocks = 264;
      const int64_t items = static_cast<int64_t>(p.mean_tiles) *
                            ((p.row_blocks + Whole8::kItemRowBlocks - 1) / Whole8::kItemRowBlocks);
      const bool split = p.k >= 4096 || (p.k >= 1024 && items < 4 * kBlocks);
      return split ? LaunchGroupedGemmBuild<Split8, 2>(p, stages, stream)
                   : LaunchGroupedGemmBuild<Whole8, 2>(p, stages, stream);
    }
    case 16:
      return LaunchGroupedGemmBuild<Of16, 2>(p, stages, stream);
    case 32:
      if constexpr (!std::is_void_v<Split32>) {
        const int64_t items = static_cast<int64_t>(p.max_tiles) *
                              ((p.row_blocks + Of32::kItemRowBlocks - 1) / Of32::kItemRowBlocks);
        constexpr int kBlocks = 264;  // As above: rounds of all blocks that whole items would fill.
        if (p.k >= 1024 && items < 4 * kBlocks) {
          return LaunchGroupedGemmBuild<Split32, 1>(p, stages, stream);
        }
      }
      return LaunchGroupedGemmBuild<Of32, 2>(p, stages, stream);
    case 64:
      return LaunchGroupedGemmBuild<Of64, 1>(p, stages, stream);
    default:
      return absl::UnimplementedError(absl::StrCat("grouped_gemm: tiles of ", tile_tokens,
                                                   " tokens; 8, 16, 32 and 64 are ", "built"));
  }
}

absl::Status LaunchGroupedGemmInt4G32(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                      cudaStream_t stream);
absl::Status LaunchGroupedGemmInt4G128(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                       cudaStream_t stream);
absl::Status LaunchGroupedGemmFp8(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                  cudaStream_t stream);
absl::Status LaunchGroupedGemmFp8Tokens(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                        cudaStream_t stream);
absl::Status LaunchGroupedGemmNvfp4(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                    cudaStream_t stream);
absl::Status LaunchGroupedGemmMxfp4(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                    cudaStream_t stream);
absl::Status LaunchGroupedGemmBf16(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                   cudaStream_t stream);

}  // namespace lastflop
