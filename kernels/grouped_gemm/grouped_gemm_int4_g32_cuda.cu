#include "kernels/grouped_gemm/grouped_gemm_launch.cuh"

namespace lastflop {

absl::Status LaunchGroupedGemmInt4G32(const GroupedGemmArguments& p, int tile_tokens, int stages,
                                      cudaStream_t stream) {
  using grouped_gemm::Tiling;
  return LaunchGroupedGemmFormat<Tiling<32, 8, 2, 2, 1>, Tiling<32, 1, 2, 4, 1>,
                                 Tiling<32, 1, 1, 4, 2>, Tiling<32, 1, 1, 4, 4>,
                                 Tiling<32, 1, 2, 2, 8>>(p, tile_tokens, stages, stream);
}

}  // namespace lastflop
