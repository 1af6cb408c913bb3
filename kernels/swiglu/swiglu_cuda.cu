#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/swiglu/swiglu_cuda.h"

namespace lastflop {
namespace {

constexpr int kThreads = 256;
constexpr int kVector = 8;  // Elements of a thread: 16 bytes.

__device__ inline float SiluMul(float gate, float up) { return gate / (1.0f + __expf(-gate)) * up; }

__device__ inline uint32_t SiluMulPair(uint32_t gate, uint32_t up) {
  return PackBf16(SiluMul(LowBf16(gate), LowBf16(up)), SiluMul(HighBf16(gate), HighBf16(up)));
}

// `num_rows` is read from the device when it is not null; row r is place[r] where that is not null.
__global__ void SwigluKernel(int64_t rows, const int32_t* num_rows, const int32_t* place,
                             int vectors, const uint4* in, uint4* out) {
  WaitForEarlierKernels();
  LetNextKernelStart();
  const int64_t count = (num_rows != nullptr ? *num_rows : rows) * vectors;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t index = i / vectors;
    const int64_t row = place != nullptr ? place[index] : index;
    const int64_t vector = i - index * vectors;
    const int64_t at = 2 * row * vectors + vector;
    const uint4 gate = in[at];
    const uint4 up = in[at + vectors];
    out[row * vectors + vector] = make_uint4(SiluMulPair(gate.x, up.x), SiluMulPair(gate.y, up.y),
                                             SiluMulPair(gate.z, up.z), SiluMulPair(gate.w, up.w));
  }
}

}  // namespace

absl::Status CheckSwigluCuda(const ActivationShape& shape) {
  if (shape.rows < 0 || shape.intermediate_size < 1 || shape.intermediate_size % kVector != 0 ||
      (shape.is_padded && !shape.rows_are_pairs)) {
    return absl::InvalidArgumentError(absl::StrCat("swiglu: rows=", shape.rows,
                                                   " intermediate_size=", shape.intermediate_size,
                                                   ", a multiple of ", kVector, " is taken"));
  }
  return absl::OkStatus();
}

absl::Status LaunchSwiglu(const ActivationShape& shape, const CudaPairs* pairs,
                          const __nv_bfloat16* in, __nv_bfloat16* out, cudaStream_t stream) {
  LASTFLOP_RETURN_IF_ERROR(CheckSwigluCuda(shape));
  if (shape.rows == 0) {
    return absl::OkStatus();
  }
  const int64_t vectors = shape.intermediate_size / kVector;
  const auto grid = static_cast<unsigned int>(
      std::min<int64_t>((shape.rows * vectors + kThreads - 1) / kThreads, 4096));
  const int32_t* num_rows = shape.rows_are_pairs ? pairs->num_pairs() : nullptr;
  const int32_t* place = shape.is_padded ? pairs->padded_row : nullptr;
  return LaunchOverlapping("swiglu", SwigluKernel, dim3(grid), kThreads, 0, stream, shape.rows,
                           num_rows, place, static_cast<int>(vectors),
                           reinterpret_cast<const uint4*>(in), reinterpret_cast<uint4*>(out));
}

}  // namespace lastflop
