#include "kernels/cuda/plain_weights_cuda.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kernels/cpu/plain_weights.h"
#include "kernels/fp4.h"
#include "tests/kernels_cuda/moe_cuda_case.h"

namespace lastflop {
namespace {

constexpr int64_t kMatrices = 3;
constexpr int64_t kRows = 256;
constexpr int64_t kCols = 384;

struct PlainCase {
  explicit PlainCase(WeightFormat format)
      : slice(SliceCase(format, kMatrices, kRows, kCols, 2)),
        cpu(CpuOf(slice)),
        layout(*PlainLayout::Create(StorageOf(format), kMatrices, kRows, kCols)),
        memory(static_cast<int64_t>(layout.bytes())) {
    LASTFLOP_EXPECT_OK(
        LaunchFillPlainWeights(slice, memory.get(), memory.get() + layout.scale_begin, nullptr));
  }

  CudaWeightSlice slice;
  CpuCase cpu;
  PlainLayout layout;
  DeviceArray<unsigned char> memory;
};

TEST(PlainWeightsCudaTest, WritesTheBytesThatTheCpuWrites) {
  LASTFLOP_NEED_GPU();
  auto pool = ThreadPool::Create({});
  ASSERT_TRUE(pool.ok()) << pool.status();
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt4G32,
                                    WeightFormat::kInt4G128, WeightFormat::kFp8Block}) {
    const PlainCase plain(format);
    std::vector<std::byte> wanted(plain.layout.bytes());
    FillPlainWeights(plain.cpu.slice, plain.cpu.layout, plain.layout, wanted.data(), **pool);
    const std::vector<unsigned char> got = plain.memory.Download();
    EXPECT_EQ(std::memcmp(got.data(), wanted.data(), wanted.size()), 0) << ToWord(format);
  }
}

TEST(PlainWeightsCudaTest, WritesFp4AsTheHeaderOfPluginsDrawsIt) {
  LASTFLOP_NEED_GPU();
  for (const WeightFormat format : {WeightFormat::kNvfp4, WeightFormat::kMxfp4}) {
    const PlainCase plain(format);
    const std::vector<unsigned char> got = plain.memory.Download();
    const bool is_nvfp4 = format == WeightFormat::kNvfp4;
    const float of_tensor = is_nvfp4 ? Nvfp4TensorScale(plain.slice.amplitude) : 1.0F;
    std::vector<float> wanted(kCols);
    for (int64_t row = 0; row < kMatrices * kRows; ++row) {
      ReferenceWeightRow(plain.cpu.slice, plain.cpu.layout, row / kRows, row % kRows, wanted);
      for (int64_t col = 0; col < kCols; ++col) {
        const int64_t at = row * kCols + col;
        const uint32_t code = got[static_cast<size_t>(at / 2)] >> (col % 2 * 4) & 15U;
        const uint32_t scale =
            got[plain.layout.scale_begin + static_cast<size_t>(at / (is_nvfp4 ? 16 : 32))];
        const float of_group = is_nvfp4 ? Nvfp4ScaleValue(scale) : Mxfp4ScaleValue(scale);
        ASSERT_FLOAT_EQ(Fp4Value(code) * (of_group * of_tensor), wanted[static_cast<size_t>(col)])
            << ToWord(format) << " row " << row << " col " << col;
      }
    }
  }
}

TEST(PlainWeightsCudaTest, RefusesColumnsThatAGroupDoesNotDivide) {
  const CudaWeightSlice slice = SliceCase(WeightFormat::kInt4G128, 1, 16, 192, 1);
  EXPECT_EQ(LaunchFillPlainWeights(slice, nullptr, nullptr, nullptr).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
