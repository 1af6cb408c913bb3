#include "kernels/grouped_gemm/grouped_gemm_launch.cuh"

namespace lastflop {

absl::Status LaunchGroupedGemmFp8(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                  cudaStream_t stream) {
  using grouped_gemm::Tiling;
  constexpr WeightFormat kFormat = WeightFormat::kFp8Block;
  return LaunchGroupedGemmFormat<Tiling<kFormat, 8, 1, 2, 1>, Tiling<kFormat, 1, 1, 2, 1>,
                                 Tiling<kFormat, 1, 1, 2, 2>, Tiling<kFormat, 1, 1, 2, 4>,
                                 Tiling<kFormat, 1, 2, 2, 8>, Tiling<kFormat, 8, 1, 2, 4>>(
      p, tile_tokens, stages, stream);
}

}  // namespace lastflop
