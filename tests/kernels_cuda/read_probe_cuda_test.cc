// Cold and warm reads (H5): a read that the L2 holds is faster warm, one of eight times its size is
// not, and no cold one is faster than the memory.
#include "kernels/cuda/read_probe_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernels_cuda/device_case.h"

namespace lastflop {
namespace {

class ReadProbeCudaTest : public ::testing::Test {
 protected:
  static constexpr int kReads = 15;

  void SetUp() override {
    LASTFLOP_NEED_GPU();
    int device = 0;
    int l2_bytes = 0;
    int clock_khz = 0;
    int bus_bits = 0;
    LASTFLOP_EXPECT_CUDA_OK(cudaGetDevice(&device));
    LASTFLOP_EXPECT_CUDA_OK(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device));
    LASTFLOP_EXPECT_CUDA_OK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, device));
    LASTFLOP_EXPECT_CUDA_OK(
        cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, device));
    l2_bytes_ = l2_bytes;
    peak_bytes_per_us_ = 2 * clock_khz * 1e-3 * bus_bits / 8;
  }

  // Median time of a read of the first `bytes` of `data` after one of `before`, which is not in it.
  double MedianMicros(const DeviceArray<unsigned char>& data, int64_t bytes,
                      const DeviceArray<unsigned char>& before, int64_t before_bytes) {
    DeviceArray<uint32_t> sink(1);
    cudaEvent_t begin = nullptr;
    cudaEvent_t end = nullptr;
    LASTFLOP_EXPECT_CUDA_OK(cudaEventCreate(&begin));
    LASTFLOP_EXPECT_CUDA_OK(cudaEventCreate(&end));
    std::vector<float> times;
    for (int i = 0; i < kReads; ++i) {
      LASTFLOP_EXPECT_OK(LaunchReadProbe(before.get(), before_bytes, sink.get(), nullptr));
      LASTFLOP_EXPECT_CUDA_OK(cudaEventRecord(begin, nullptr));
      LASTFLOP_EXPECT_OK(LaunchReadProbe(data.get(), bytes, sink.get(), nullptr));
      LASTFLOP_EXPECT_CUDA_OK(cudaEventRecord(end, nullptr));
      LASTFLOP_EXPECT_CUDA_OK(cudaDeviceSynchronize());
      float milliseconds = 0;
      LASTFLOP_EXPECT_CUDA_OK(cudaEventElapsedTime(&milliseconds, begin, end));
      times.push_back(1e3f * milliseconds);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  struct Pair {
    double cold_us;
    double warm_us;
  };
  Pair Measure(int64_t bytes) {
    DeviceArray<unsigned char> data(bytes);
    DeviceArray<unsigned char> other(4 * l2_bytes_);
    LASTFLOP_EXPECT_OK(LaunchFillProbe(data.get(), data.count(), nullptr));
    LASTFLOP_EXPECT_OK(LaunchFillProbe(other.get(), other.count(), nullptr));
    const Pair pair = {.cold_us = MedianMicros(data, bytes, other, other.count()),
                       .warm_us = MedianMicros(data, bytes, data, bytes)};
    RecordProperty(absl::StrCat("cold_us_of_", bytes), absl::StrCat(pair.cold_us));
    RecordProperty(absl::StrCat("warm_us_of_", bytes), absl::StrCat(pair.warm_us));
    return pair;
  }

  int64_t l2_bytes_ = 0;
  double peak_bytes_per_us_ = 0;
};

TEST_F(ReadProbeCudaTest, AReadThatTheL2HoldsIsFasterWarmAndNeverFasterThanMemoryCold) {
  constexpr int64_t kBytes = 16 << 20;
  const Pair pair = Measure(kBytes);
  EXPECT_LT(pair.warm_us, 0.9 * pair.cold_us);
  EXPECT_GE(pair.cold_us, static_cast<double>(kBytes) / peak_bytes_per_us_);
}

TEST_F(ReadProbeCudaTest, AReadOfEightTimesTheL2IsTheSameColdAndWarm) {
  const int64_t bytes = 8 * l2_bytes_;
  const Pair pair = Measure(bytes);
  // A eighth of it may still be there.
  EXPECT_NEAR(pair.warm_us / pair.cold_us, 1, 0.15);
  EXPECT_GE(pair.cold_us, static_cast<double>(bytes) / peak_bytes_per_us_);
}

}  // namespace
}  // namespace lastflop
