#include "kernels/grouped_gemm/grouped_gemm_launch.cuh"

namespace lastflop {

absl::Status LaunchGroupedGemmFp8Tokens(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                        cudaStream_t stream) {
  using grouped_gemm::Tiling;
  constexpr WeightFormat kFormat = WeightFormat::kFp8Block;
  return LaunchGroupedGemmFormat<
      Tiling<kFormat, 8, 1, 2, 1, true>, Tiling<kFormat, 1, 1, 2, 1, true>,
      Tiling<kFormat, 1, 1, 2, 2, true>, Tiling<kFormat, 1, 1, 2, 4, true>,
      Tiling<kFormat, 1, 2, 2, 8, true>>(p, tile_tokens, stages, stream);
}

}  // namespace lastflop
