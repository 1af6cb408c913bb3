#include "kernels/grouped_gemm/grouped_gemm_launch.cuh"

namespace lastflop {

absl::Status LaunchGroupedGemmMxfp4(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                    cudaStream_t stream) {
  using grouped_gemm::Tiling;
  constexpr WeightFormat kFormat = WeightFormat::kMxfp4;
  return LaunchGroupedGemmFormat<Tiling<kFormat, 8, 2, 2, 1>, Tiling<kFormat, 1, 2, 4, 1>,
                                 Tiling<kFormat, 1, 1, 4, 2>, Tiling<kFormat, 1, 1, 4, 4>,
                                 Tiling<kFormat, 1, 2, 2, 8>>(p, tile_tokens, stages, stream);
}

}  // namespace lastflop
