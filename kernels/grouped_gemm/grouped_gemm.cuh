#pragma once

#include <cstdint>

#include "kernels/grouped_gemm/grouped_gemm_consumer.cuh"
#include "kernels/grouped_gemm/grouped_gemm_producer.cuh"

// The grouped GEMM's device code. docs/kernels/grouped_gemm.md has the floor and the reasons.
//
// Persistent blocks. A work item is (tile of up to 8 * kTokenTiles pairs of one expert, some row
// blocks of 16 output features). The last warp is the producer: it walks over the block's items and
// copies stages of weights and activations into a ring in shared memory, several stages ahead and
// across the borders of items, so that memory never waits for a reduction. The others multiply:
// kWarpsK of them split the input features of a stage, the rest its row blocks.
// Weights arrive in the order of the A fragments; a lane's activations are 16-byte words.
//
// int4: nibbles become bf16 128 + n by one instruction a pair. Where a warp has one token tile, the
// offset of 136 is taken off by a product of the activations with -136, shared by the warp's row
// blocks, and each group's sum is scaled in fp32. Where it has more, a subtraction takes it off,
// and the weight is scaled in bf16: rounded once, and nothing left to do for each token tile. fp8:
// a shift and two masks make bf16 pairs, a product with 2^120 puts their exponents right; sums of
// 64 features are scaled in fp32. fp4: the same, and the product is with the group's scale: a code
// times an e4m3 scale has 6 bits, so that bf16 holds it exactly.
namespace lastflop {
namespace grouped_gemm {

template <typename T, int kBlocksPerSm>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    GroupedGemmKernel(const GroupedGemmArguments p) {
  extern __shared__ __align__(128) unsigned char shared_memory[];
  const SharedLayout at = MakeLayout<T>(shared_memory, p.stages);
  if (threadIdx.x == 0) {
    for (int i = 0; i < p.stages; ++i) {
      InitBarrier(at.full + 8 * i, kFullArrivals);
      InitBarrier(at.empty + 8 * i, kConsumers);
    }
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
  }
  for (int i = static_cast<int>(threadIdx.x); i < p.stages * T::kTokens * 16; i += kThreads) {
    // The 64 bytes behind each token's row.
    unsigned char* row = at.stages + i / (T::kTokens * 16) * T::kStageBytes + T::kWeightBytes +
                         i / 16 % T::kTokens * T::kTokenStride;
    reinterpret_cast<uint32_t*>(row + T::kTokenBytes)[i % 16] = 0;
  }
  __syncthreads();
  if (threadIdx.x / 32 == kConsumers) {
    Producer<T>(p, at).Run();
  } else {
    Consume<T>(p, at);
  }
}

}  // namespace grouped_gemm
}  // namespace lastflop
