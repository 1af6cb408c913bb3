#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/pad_rows/pad_rows_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 128;
constexpr int kVector = 8;  // Elements of a thread: 16 bytes.

// One thread 8 features of the pairs of a tile.
__global__ void PadRowsKernel(const CudaPairs pairs, int padded_rows, int vectors, const uint4* in,
                              uint4* out) {
  const int vector = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int num_tiles = *pairs.num_tiles;
  for (int t = static_cast<int>(blockIdx.y); t < num_tiles; t += static_cast<int>(gridDim.y)) {
    const CudaTile tile = pairs.tiles[t];
    const int first_row = tile.expert * padded_rows + tile.begin - pairs.offsets[tile.expert];
    if (blockIdx.x == 0) {
      for (int i = static_cast<int>(threadIdx.x); i < tile.count; i += kThreads) {
        pairs.padded_row[tile.begin + i] = first_row + i;
      }
    }
    if (vector < vectors) {
#pragma unroll 8
      for (int i = 0; i < tile.count; ++i) {
        const int64_t token = pairs.token[tile.begin + i];
        out[static_cast<int64_t>(first_row + i) * vectors + vector] = in[token * vectors + vector];
      }
    }
  }
}

}  // namespace

absl::Status CheckPadRowsCuda(const PadShape& shape) {
  if (shape.num_tokens < 0 || shape.top_k < 1 || shape.num_local_experts < 1 ||
      shape.padded_rows < shape.num_tokens || shape.hidden_size < 1 ||
      shape.hidden_size % kVector != 0) {
    return absl::InvalidArgumentError(absl::StrCat("pad_rows: num_tokens=", shape.num_tokens,
                                                   " padded_rows=", shape.padded_rows,
                                                   " hidden_size=", shape.hidden_size,
                                                   ": at least as many rows as tokens, and a "
                                                   "multiple of ",
                                                   kVector, " features are taken"));
  }
  if (shape.num_local_experts * shape.padded_rows > INT32_MAX) {
    return absl::UnimplementedError(absl::StrCat("pad_rows: ", shape.num_local_experts,
                                                 " experts of ", shape.padded_rows,
                                                 " rows are more than 31 bits count"));
  }
  return absl::OkStatus();
}

absl::Status LaunchPadRows(const PadShape& shape, const CudaPairs& pairs, const __nv_bfloat16* in,
                           __nv_bfloat16* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckPadRowsCuda(shape));
  if (pairs.num_slots != shape.num_tokens * shape.top_k ||
      pairs.num_local_experts != shape.num_local_experts) {
    return absl::InvalidArgumentError(absl::StrCat("pad_rows: pairs placed for ", pairs.num_slots,
                                                   " slots, the shape has ",
                                                   shape.num_tokens * shape.top_k));
  }
  if (pairs.num_slots == 0) {
    return absl::OkStatus();
  }
  const auto vectors = static_cast<int>(shape.hidden_size / kVector);
  const dim3 grid(static_cast<unsigned int>((vectors + kThreads - 1) / kThreads),
                  static_cast<unsigned int>(std::min<int64_t>(pairs.max_tiles, 65535)));
  return LaunchOverlapping("pad_rows", PadRowsKernel, grid, kThreads, 0, stream, pairs,
                           static_cast<int>(shape.padded_rows), vectors,
                           reinterpret_cast<const uint4*>(in), reinterpret_cast<uint4*>(out));
}

}  // namespace lastflop
