#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"
#include "common/random.h"

// Activations in fp8: 128 neighbours of a row share a scale (moe.activations: fp8).
//
//   scale = max |in| / 448 in fp32;  q = e4m3(in / scale), 0 where the scale is
//
// A quantized row is blocks of 144 bytes: 128 values, then the scale, then 12 bytes of zeros. The 4
// bytes of a word are features 2, 0, 3, 1 of the four, as in panels of fp8 weights
// (kernels/cuda/panel.h).
namespace lastflop {

inline constexpr int kQuantizedBlockFeatures = 128;
inline constexpr int kQuantizedBlockBytes = 144;

// Bytes of a quantized row; `cols` is a multiple of 128.
LASTFLOP_HOST_DEVICE constexpr int64_t QuantizedRowBytes(int64_t cols) {
  return cols / kQuantizedBlockFeatures * kQuantizedBlockBytes;
}

// Quantizes in[rows, cols] to `out`, rows * QuantizedRowBytes(cols) bytes of device memory, 16-byte
// aligned. `num_rows` (device memory) is how many of the rows are there; null: all. Does not wait;
// can be captured in a graph. InvalidArgument: cols that 128 does not divide.
absl::Status LaunchQuantizeRows(int64_t rows, int64_t cols, const int32_t* num_rows,
                                const __nv_bfloat16* in, void* out, cudaStream_t stream);

}  // namespace lastflop
