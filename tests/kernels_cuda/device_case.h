#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cpu/bf16.h"

// What tests of CUDA kernels share.
namespace lastflop {

// Skips the test where there is no GPU; fails it there under LASTFLOP_REQUIRE_GPU=1.
#define LASTFLOP_NEED_GPU()                                                          \
  do {                                                                               \
    int need_gpu_count = 0;                                                          \
    if (cudaGetDeviceCount(&need_gpu_count) != cudaSuccess || need_gpu_count == 0) { \
      const char* need_gpu = std::getenv("LASTFLOP_REQUIRE_GPU");                    \
      if (need_gpu != nullptr && std::string(need_gpu) == "1") {                     \
        FAIL() << "LASTFLOP_REQUIRE_GPU=1 and there is no GPU";                      \
      }                                                                              \
      GTEST_SKIP() << "no GPU";                                                      \
    }                                                                                \
  } while (false)

#define LASTFLOP_EXPECT_OK(expr)                         \
  do {                                                   \
    const absl::Status expect_ok = (expr);               \
    EXPECT_TRUE(expect_ok.ok()) << expect_ok.ToString(); \
  } while (false)

#define LASTFLOP_EXPECT_CUDA_OK(expr) EXPECT_EQ((expr), cudaSuccess)

// Whether the device has so much left.
inline bool HasMemory(int64_t bytes) {
  size_t free = 0;
  size_t total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess && static_cast<int64_t>(free) > bytes;
}

// Device memory of some values, all bytes 0xFF at first: NaN as a number, -1 as an index.
template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count) : count_(count) {
    LASTFLOP_EXPECT_CUDA_OK(cudaMalloc(&data_, bytes() + 1));
    LASTFLOP_EXPECT_CUDA_OK(cudaMemset(data_, 0xFF, bytes() + 1));
  }
  template <typename U>
  explicit DeviceArray(const std::vector<U>& values)
      : DeviceArray(static_cast<int64_t>(values.size())) {
    static_assert(sizeof(T) == sizeof(U));
    LASTFLOP_EXPECT_CUDA_OK(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* get() const { return static_cast<T*>(data_); }
  int64_t count() const { return count_; }
  size_t bytes() const { return static_cast<size_t>(count_) * sizeof(T); }

  // Waits for the device. `U` is a type of the same size.
  template <typename U = T>
  std::vector<U> Download() const {
    static_assert(sizeof(T) == sizeof(U));
    std::vector<U> values(static_cast<size_t>(count_));
    LASTFLOP_EXPECT_CUDA_OK(cudaDeviceSynchronize());
    LASTFLOP_EXPECT_CUDA_OK(cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  int64_t count_;
  void* data_ = nullptr;
};

}  // namespace lastflop
