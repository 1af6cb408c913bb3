#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gpu/device_buffer.h"

namespace lastflop {

// A bf16 product, or a batch of them: out[t, n] = sum_k in[t, k] * weight[n, k] (+ bias[n]), fp32
// accumulation. All strides in elements.
struct DenseGemm {
  int64_t num_tokens = 0;
  int64_t out_features = 0;
  int64_t in_features = 0;
  int64_t in_stride = 0;   // Between rows of `in`.
  int64_t out_stride = 0;  // Between rows of `out`.
  int64_t batch = 1;
  int64_t in_batch_stride = 0;
  int64_t weight_batch_stride = 0;
  int64_t out_batch_stride = 0;
  bool fp32_out = false;
  bool bias = false;
  auto operator<=>(const DenseGemm&) const = default;
};

// cuBLASLt of the host, found when first asked for. Not thread-safe; one a process and device.
class CublasLt {
 public:
  // NotFound without the library; the message says how to name one.
  static absl::StatusOr<std::unique_ptr<CublasLt>> Create();
  ~CublasLt();

  // Chooses an algorithm for `gemm` on the device; from then on Run() neither allocates nor
  // synchronizes. Unimplemented when the library has none.
  absl::Status Prepare(const DenseGemm& gemm);

  // Enqueues it. `gemm` was prepared; pointers are device memory, 16-byte aligned; `bias` is bf16
  // [out_features] or null.
  absl::Status Run(const DenseGemm& gemm, const void* in, const void* weight, const void* bias,
                   void* out, cudaStream_t stream);

  const std::string& library_path() const { return path_; }
  size_t version() const { return version_; }

 private:
  struct Api;
  struct Plan;
  CublasLt(std::unique_ptr<Api> api, std::string path);

  std::unique_ptr<Api> api_;
  std::string path_;
  size_t version_ = 0;
  cublasLtHandle_t handle_ = nullptr;
  DeviceBuffer workspace_;
  std::map<DenseGemm, std::unique_ptr<Plan>> plans_;
};

}  // namespace lastflop
