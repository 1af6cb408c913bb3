#include "kernels/grouped_gemm/grouped_gemm_launch.cuh"

namespace lastflop {

absl::Status LaunchGroupedGemmBf16(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                   cudaStream_t stream) {
  using grouped_gemm::Tiling;
  return LaunchGroupedGemmFormat<Tiling<0, 8, 1, 1, 1>, Tiling<0, 1, 1, 2, 1>,
                                 Tiling<0, 1, 1, 2, 2>, Tiling<0, 1, 2, 1, 4>,
                                 Tiling<0, 1, 2, 1, 8>>(p, tile_tokens, stages, stream);
}

}  // namespace lastflop
