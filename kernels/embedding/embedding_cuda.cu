#include <algorithm>

#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_ops.cuh"
#include "kernels/embedding/embedding.h"
#include "kernels/embedding/embedding_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 128;

// A block a run of kThreads * kRun elements of a token.
template <int kRun>
__global__ void EmbeddingKernel(EmbeddingShape shape, const int32_t* token_ids,
                                const __nv_bfloat16* table, __nv_bfloat16* out) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t h = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kRun;
  if (h >= shape.hidden_size) {
    return;
  }
  const int64_t token = blockIdx.x;
  const int64_t row = token_ids[token] - shape.vocab_begin;
  Bf16Run<kRun> run = {};
  if (row >= 0 && row < shape.vocab_rows) {
    run = Bf16Run<kRun>::Load(table + row * shape.hidden_size + h);
  }
  run.Store(out + token * shape.hidden_size + h);
}

}  // namespace

absl::Status LaunchEmbedding(const EmbeddingShape& shape, const int32_t* token_ids,
                             const __nv_bfloat16* table, __nv_bfloat16* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateEmbedding(shape));
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  const int run = shape.hidden_size % 8 == 0 ? 8 : 1;
  const int64_t runs = shape.hidden_size / run;
  const dim3 grid(static_cast<unsigned>(shape.num_tokens),
                  static_cast<unsigned>((runs + kThreads - 1) / kThreads));
  return LaunchOverlapping("embedding", run == 8 ? EmbeddingKernel<8> : EmbeddingKernel<1>, grid,
                           kThreads, 0, stream, shape, token_ids, table, out);
}

}  // namespace lastflop
