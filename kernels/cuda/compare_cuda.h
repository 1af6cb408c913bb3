#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/status/status.h"

// Checks of results on the device. Pointers are device memory. InvalidArgument for sizes out of
// range; Internal when a launch fails.
namespace lastflop {

// What LaunchCompare leaves in device memory.
struct CompareResult {
  // RowError() of kernels/tolerance.h: largest relative row error; infinity when a value of `got`
  // is not finite or where a non-zero stands for an all-zero reference.
  double max_row_error = 0;
  double rms_error = 0;  // Over all elements with a finite difference.
  double rms_want = 0;
  float max_abs_error = 0;
  float max_abs_want = 0;
  int64_t worst_row = -1;  // Row of max_row_error; -1 when all agree exactly.
  int64_t num_non_finite = 0;
  int64_t first_non_finite = -1;  // Index of an element of `got`, -1 for none.
};

// Scratch of LaunchCompare, 16-byte aligned, any content.
int64_t CompareWorkspaceBytes(int64_t rows);

// Compares got with want, both [rows, row_size] with got_stride and want_stride elements between
// rows, and writes *result. Two launches.
absl::Status LaunchCompare(const __nv_bfloat16* got, int64_t got_stride, const float* want,
                           int64_t want_stride, int64_t rows, int64_t row_size,
                           CompareResult* result, void* workspace, cudaStream_t stream);
absl::Status LaunchCompare(const float* got, int64_t got_stride, const float* want,
                           int64_t want_stride, int64_t rows, int64_t row_size,
                           CompareResult* result, void* workspace, cudaStream_t stream);
absl::Status LaunchCompare(const __nv_bfloat16* got, int64_t got_stride, const __nv_bfloat16* want,
                           int64_t want_stride, int64_t rows, int64_t row_size,
                           CompareResult* result, void* workspace, cudaStream_t stream);

// Fills a buffer with bytes 0xFF: NaN as bf16, fp32 and fp8 e4m3, -1 as int32.
absl::Status LaunchPoison(void* buffer, int64_t bytes, cudaStream_t stream);

}  // namespace lastflop
