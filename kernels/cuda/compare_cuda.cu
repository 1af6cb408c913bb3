#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gpu/cuda_status.h"
#include "kernels/cuda/compare_cuda.h"
#include "kernels/cuda/row_ops.cuh"

namespace lastflop {
namespace {

constexpr int kThreads = 256;
constexpr double kSmallRow = 0.01;  // Of the rms row norm, as kernels/tolerance.cc has it.

struct RowRecord {
  double error_squares;
  double want_squares;
  float max_abs_error;
  float max_abs_want;
  int64_t num_non_finite;
  int64_t first_non_finite;  // Index within the row; -1: none.
};

__device__ float ValueOf(float value) { return value; }
__device__ float ValueOf(__nv_bfloat16 value) { return __bfloat162float(value); }

__device__ void Merge(RowRecord& into, const RowRecord& other) {
  into.error_squares += other.error_squares;
  into.want_squares += other.want_squares;
  into.max_abs_error = fmaxf(into.max_abs_error, other.max_abs_error);
  into.max_abs_want = fmaxf(into.max_abs_want, other.max_abs_want);
  into.num_non_finite += other.num_non_finite;
  if (other.first_non_finite >= 0 &&
      (into.first_non_finite < 0 || other.first_non_finite < into.first_non_finite)) {
    into.first_non_finite = other.first_non_finite;
  }
}

// A block a row.
template <typename Got, typename Want>
__global__ void CompareRowsKernel(const Got* got, int64_t got_stride, const Want* want,
                                  int64_t want_stride, int64_t row_size, RowRecord* records) {
  __shared__ RowRecord threads[kThreads];
  const Got* const got_row = got + blockIdx.x * got_stride;
  const Want* const want_row = want + blockIdx.x * want_stride;
  RowRecord own = {0, 0, 0, 0, 0, -1};
  for (int64_t i = threadIdx.x; i < row_size; i += kThreads) {
    const float g = ValueOf(got_row[i]);
    const float w = ValueOf(want_row[i]);
    own.want_squares += static_cast<double>(w) * static_cast<double>(w);
    own.max_abs_want = fmaxf(own.max_abs_want, fabsf(w));
    if (!isfinite(g)) {
      own.first_non_finite = own.num_non_finite == 0 ? i : own.first_non_finite;
      ++own.num_non_finite;
      continue;
    }
    const double error = static_cast<double>(g) - static_cast<double>(w);
    own.error_squares += error * error;
    own.max_abs_error = fmaxf(own.max_abs_error, fabsf(static_cast<float>(error)));
  }
  threads[threadIdx.x] = own;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      Merge(threads[threadIdx.x], threads[threadIdx.x + half]);
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    records[blockIdx.x] = threads[0];
  }
}

__device__ double RowErrorOf(const RowRecord& record, double least_norm) {
  const double norm = fmax(sqrt(record.want_squares), least_norm);
  const double error = sqrt(record.error_squares);
  const bool is_bad = record.num_non_finite > 0 || error != error || (norm == 0 && error > 0);
  return is_bad ? INFINITY : error == 0 ? 0 : error / norm;
}

// One block over all rows: totals first, then the worst row against the rms row norm.
__global__ void CompareTotalsKernel(const RowRecord* records, int64_t rows, int64_t row_size,
                                    CompareResult* result) {
  __shared__ RowRecord threads[kThreads];
  __shared__ double worst[kThreads];
  __shared__ int64_t worst_rows[kThreads];
  RowRecord own = {0, 0, 0, 0, 0, -1};
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    RowRecord record = records[row];
    if (record.first_non_finite >= 0) {
      record.first_non_finite += row * row_size;
    }
    Merge(own, record);
  }
  threads[threadIdx.x] = own;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      Merge(threads[threadIdx.x], threads[threadIdx.x + half]);
    }
    __syncthreads();
  }
  const RowRecord& total = threads[0];
  const double least_norm = kSmallRow * sqrt(total.want_squares / static_cast<double>(rows));
  double error = 0;
  int64_t error_row = -1;
  for (int64_t row = threadIdx.x; row < rows; row += kThreads) {
    const double of_row = RowErrorOf(records[row], least_norm);
    if (of_row > error) {
      error = of_row;
      error_row = row;
    }
  }
  worst[threadIdx.x] = error;
  worst_rows[threadIdx.x] = error_row;
  __syncthreads();
  if (threadIdx.x != 0) {
    return;
  }
  for (int i = 1; i < kThreads; ++i) {
    if (worst[i] > error) {
      error = worst[i];
      error_row = worst_rows[i];
    }
  }
  const auto count = static_cast<double>(rows * row_size);
  const auto finite = count - static_cast<double>(total.num_non_finite);
  *result = {.max_row_error = error,
             .rms_error = finite > 0 ? sqrt(total.error_squares / finite) : 0,
             .rms_want = sqrt(total.want_squares / count),
             .max_abs_error = total.max_abs_error,
             .max_abs_want = total.max_abs_want,
             .worst_row = error_row,
             .num_non_finite = total.num_non_finite,
             .first_non_finite = total.first_non_finite};
}

template <typename Got, typename Want>
absl::Status RunCompare(const Got* got, int64_t got_stride, const Want* want, int64_t want_stride,
                        int64_t rows, int64_t row_size, CompareResult* result, void* workspace,
                        cudaStream_t stream) {
  if (rows < 1 || row_size < 1 || got_stride < row_size || want_stride < row_size) {
    return absl::InvalidArgumentError(absl::StrCat("compare: rows=", rows, " row_size=", row_size,
                                                   " got_stride=", got_stride,
                                                   " want_stride=", want_stride));
  }
  auto* const records = static_cast<RowRecord*>(workspace);
  CompareRowsKernel<<<static_cast<unsigned>(rows), kThreads, 0, stream>>>(
      got, got_stride, want, want_stride, row_size, records);
  if (absl::Status status = LastLaunchStatus("compare rows"); !status.ok()) {
    return status;
  }
  CompareTotalsKernel<<<1, kThreads, 0, stream>>>(records, rows, row_size, result);
  return LastLaunchStatus("compare totals");
}

}  // namespace

int64_t CompareWorkspaceBytes(int64_t rows) {
  return rows * static_cast<int64_t>(sizeof(RowRecord));
}

absl::Status LaunchCompare(const __nv_bfloat16* got, int64_t got_stride, const float* want,
                           int64_t want_stride, int64_t rows, int64_t row_size,
                           CompareResult* result, void* workspace, cudaStream_t stream) {
  return RunCompare(got, got_stride, want, want_stride, rows, row_size, result, workspace, stream);
}

absl::Status LaunchCompare(const float* got, int64_t got_stride, const float* want,
                           int64_t want_stride, int64_t rows, int64_t row_size,
                           CompareResult* result, void* workspace, cudaStream_t stream) {
  return RunCompare(got, got_stride, want, want_stride, rows, row_size, result, workspace, stream);
}

absl::Status LaunchCompare(const __nv_bfloat16* got, int64_t got_stride, const __nv_bfloat16* want,
                           int64_t want_stride, int64_t rows, int64_t row_size,
                           CompareResult* result, void* workspace, cudaStream_t stream) {
  return RunCompare(got, got_stride, want, want_stride, rows, row_size, result, workspace, stream);
}

absl::Status LaunchPoison(void* buffer, int64_t bytes, cudaStream_t stream) {
  if (bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("poison: bytes=", bytes));
  }
  return CudaStatus(cudaMemsetAsync(buffer, 0xFF, static_cast<size_t>(bytes), stream), "poisoning");
}

}  // namespace lastflop
