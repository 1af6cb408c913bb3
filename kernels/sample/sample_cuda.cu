#include <algorithm>

#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/row_ops.cuh"
#include "kernels/sample/sample_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kChunk = 4096;  // Logits of a block.
constexpr int kChooseThreads = 128;

// Whether `a` wins: the larger value, the lower id among equals, a number over NaN.
__device__ bool Wins(const Candidate& a, const Candidate& b) {
  const bool a_is_nan = a.value != a.value;
  const bool b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) {
    return b_is_nan;
  }
  return a.value > b.value || ((a.value == b.value || a_is_nan) && a.token_id < b.token_id);
}

__device__ Candidate WarpBest(Candidate best) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const Candidate other = {.value = __shfl_xor_sync(kAllLanes, best.value, offset),
                             .token_id = __shfl_xor_sync(kAllLanes, best.token_id, offset)};
    best = Wins(other, best) ? other : best;
  }
  return best;
}

// Block (chunk, token): the best of a chunk of a token's logits, to best[chunk, token].
__global__ void ChunkKernel(SampleShape shape, const float* logits, Candidate* best) {
  __shared__ Candidate warps[kThreads / 32];
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t token = blockIdx.y;
  const int64_t begin = blockIdx.x * kChunk;
  const int64_t end = min(shape.vocab_rows, begin + kChunk);
  const float* const row = logits + token * shape.vocab_rows;
  Candidate own = {.value = __int_as_float(0x7FFFFFFF), .token_id = 0x7FFFFFFF};
#pragma unroll 4
  for (int64_t v = begin + threadIdx.x; v < end; v += kThreads) {
    const Candidate next = {.value = row[v],
                            .token_id = static_cast<int32_t>(shape.vocab_begin + v)};
    own = Wins(next, own) ? next : own;
  }
  own = WarpBest(own);
  if (threadIdx.x % 32 == 0) {
    warps[threadIdx.x / 32] = own;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) {
      own = Wins(warps[w], own) ? warps[w] : own;
    }
    best[blockIdx.x * shape.num_tokens + token] = own;
  }
}

// A warp a token: the best of [count, num_tokens] candidates, to either output that is not null.
__global__ void ChooseKernel(int64_t num_tokens, int count, const Candidate* candidates,
                             Candidate* best, int32_t* token_ids) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t token = static_cast<int64_t>(blockIdx.x) * (kChooseThreads / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (token >= num_tokens) {
    return;
  }
  Candidate own = candidates[token + min(lane, count - 1) * num_tokens];
  for (int i = lane + 32; i < count; i += 32) {
    const Candidate next = candidates[token + i * num_tokens];
    own = Wins(next, own) ? next : own;
  }
  own = WarpBest(own);
  if (lane == 0 && best != nullptr) {
    best[token] = own;
  }
  if (lane == 0 && token_ids != nullptr) {
    token_ids[token] = own.token_id;
  }
}

int64_t NumChunks(const SampleShape& shape) { return (shape.vocab_rows + kChunk - 1) / kChunk; }

absl::Status LaunchChoose(int64_t num_tokens, int64_t count, const Candidate* candidates,
                          Candidate* best, int32_t* token_ids, cudaStream_t stream) {
  constexpr int64_t kTokens = kChooseThreads / 32;
  return LaunchOverlapping("sample, choice", ChooseKernel,
                           dim3(static_cast<unsigned>((num_tokens + kTokens - 1) / kTokens)),
                           kChooseThreads, 0, stream, num_tokens, static_cast<int>(count),
                           candidates, best, token_ids);
}

absl::Status LaunchBoth(const SampleShape& shape, const float* logits, Candidate* best,
                        int32_t* token_ids, void* workspace, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateSample(shape));
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  if (shape.num_tokens > 65535) {
    return absl::InvalidArgumentError("sample: more than 65535 tokens in one call");
  }
  auto* const of_chunks = static_cast<Candidate*>(workspace);
  const dim3 grid(static_cast<unsigned>(NumChunks(shape)), static_cast<unsigned>(shape.num_tokens));
  LASTFLOP_RETURN_IF_ERROR(LaunchOverlapping("sample", ChunkKernel, grid, kThreads, 0, stream,
                                             shape, logits, of_chunks));
  return LaunchChoose(shape.num_tokens, NumChunks(shape), of_chunks, best, token_ids, stream);
}

}  // namespace

int64_t SampleCudaWorkspaceBytes(const SampleShape& shape) {
  return NumChunks(shape) * shape.num_tokens * static_cast<int64_t>(sizeof(Candidate));
}

absl::Status LaunchBestCandidates(const SampleShape& shape, const float* logits, Candidate* best,
                                  void* workspace, cudaStream_t stream) {
  return LaunchBoth(shape, logits, best, nullptr, workspace, stream);
}

absl::Status LaunchChooseTokens(const SampleShape& shape, const Candidate* candidates,
                                int32_t* token_ids, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(ValidateSample(shape));
  if (shape.num_tokens == 0) {
    return absl::OkStatus();
  }
  return LaunchChoose(shape.num_tokens, shape.ranks, candidates, nullptr, token_ids, stream);
}

absl::Status LaunchSample(const SampleShape& shape, const float* logits, int32_t* token_ids,
                          void* workspace, cudaStream_t stream) {
  if (shape.ranks != 1) {
    return absl::InvalidArgumentError("sample: ranks gather their candidates before the choice");
  }
  return LaunchBoth(shape, logits, nullptr, token_ids, workspace, stream);
}

}  // namespace lastflop
