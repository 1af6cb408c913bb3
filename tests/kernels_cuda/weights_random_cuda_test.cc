#include "kernels/cuda/weights_random_cuda.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/weights_random.h"
#include "kernels/dequant/dequant_cuda.h"
#include "kernels/tolerance.h"
#include "tests/kernels_cuda/moe_cuda_case.h"

namespace lastflop {
namespace {

std::vector<float> CpuRow(const CpuCase& cpu, int64_t matrix, int64_t row) {
  std::vector<float> values(static_cast<size_t>(cpu.layout.cols));
  ReferenceWeightRow(cpu.slice, cpu.layout, matrix, row, values);
  return values;
}

// Element of bf16 panels, as kernels/cuda/panel.h draws them.
Bf16 PanelAt(const std::vector<unsigned char>& panels, const CudaWeightSlice& slice,
             CudaRowOrder order, int64_t matrix, int64_t row, int64_t k) {
  int64_t block = row / 16;
  int64_t r = row % 16;
  if (order == CudaRowOrder::kGateAndUp) {
    const int64_t half = slice.rows() / 2;
    block = row % half / 8;
    r = row % half % 8 + (row < half ? 0 : 8);
  }
  const int64_t k_blocks = PanelKBlocks(WeightFormat::kBf16, slice.cols);
  const int64_t in_block = k % 64;
  const int64_t q = in_block % 32 / 8;
  const int64_t j = in_block / 32 * 2 + in_block % 8 / 4;
  const int64_t lane = r % 8 * 4 + q;
  const int64_t reg = in_block % 4 / 2 * 2 + r / 8;
  const int64_t at = ((matrix * (slice.rows() / 16) + block) * k_blocks + k / 64) * 2048 + 512 * j +
                     16 * lane + 4 * reg + 2 * (k % 2);
  Bf16 value;
  std::memcpy(&value, panels.data() + at, sizeof(value));
  return value;
}

TEST(WeightsRandomCudaTest, WritesPlainRowsAsTheCpuDoes) {
  LASTFLOP_NEED_GPU();
  for (const int64_t cols : {64, 7, 1}) {
    const CudaWeightSlice slice = SliceCase(WeightFormat::kBf16, 3, 6, cols, 3);
    DeviceArray<__nv_bfloat16> out(3 * 6 * cols);
    LASTFLOP_EXPECT_OK(LaunchFillRows(slice, out.get(), nullptr));
    const auto got = out.Download<Bf16>();
    const CpuCase cpu = CpuOf(slice);
    for (int64_t row = 0; row < 18; ++row) {
      const std::vector<float> want = CpuRow(cpu, row / 6, row % 6);
      for (int64_t c = 0; c < cols; ++c) {
        ASSERT_EQ(ToFloat(got[static_cast<size_t>(row * cols + c)]), want[static_cast<size_t>(c)])
            << "cols " << cols << " row " << row << " col " << c;
      }
    }
  }
}

TEST(WeightsRandomCudaTest, WritesPanelsInTheOrderThatTheHeaderDraws) {
  LASTFLOP_NEED_GPU();
  for (const CudaRowOrder order : {CudaRowOrder::kPlain, CudaRowOrder::kGateAndUp}) {
    const CudaWeightSlice slice =
        SliceCase(WeightFormat::kBf16, 2, 48, 136, order == CudaRowOrder::kPlain ? 1 : 2);
    DeviceArray<unsigned char> panels(PanelBytes(slice));
    LASTFLOP_EXPECT_OK(LaunchFillPanels(slice, order, panels.get(), nullptr));
    const auto got = panels.Download();
    const CpuCase cpu = CpuOf(slice);
    for (int64_t row = 0; row < 96; ++row) {
      const std::vector<float> want = CpuRow(cpu, row / 48, row % 48);
      for (int64_t c = 0; c < 136; ++c) {
        ASSERT_EQ(ToFloat(PanelAt(got, slice, order, row / 48, row % 48, c)),
                  want[static_cast<size_t>(c)])
            << "row " << row << " col " << c;
      }
      ASSERT_EQ(ToFloat(PanelAt(got, slice, order, row / 48, row % 48, 191)), 0.0f);
    }
  }
}

TEST(WeightsRandomCudaTest, DequantizesTheInt4WeightsOfExpertsWithPairsOnly) {
  LASTFLOP_NEED_GPU();
  for (const WeightFormat format : {WeightFormat::kInt4G32, WeightFormat::kInt4G128}) {
    const int64_t cols = format == WeightFormat::kInt4G32 ? 96 : 384;
    const CudaWeightSlice slice = SliceCase(format, 3, 32, cols, 2);
    DeviceArray<unsigned char> panels(PanelBytes(slice));
    LASTFLOP_EXPECT_OK(LaunchFillPanels(slice, CudaRowOrder::kGateAndUp, panels.get(), nullptr));
    CudaWeightSlice plain = slice;
    plain.format = WeightFormat::kBf16;
    DeviceArray<unsigned char> out(PanelBytes(plain));
    const RoutingCase routing(PermuteCase(2, 1, 3, 0, 3), 8, {2, 0});
    LASTFLOP_EXPECT_OK(LaunchDequant({.num_local_experts = 3,
                                      .out_features = 32,
                                      .in_features = cols,
                                      .storage = StorageOf(format)},
                                     routing.pairs, panels.get(), out.get(), nullptr));
    const auto got = out.Download();
    const CpuCase cpu = CpuOf(slice);
    for (int64_t row = 0; row < 96; ++row) {
      const std::vector<float> want = CpuRow(cpu, row / 32, row % 32);
      for (int64_t c = 0; c < cols; ++c) {
        const Bf16 value = PanelAt(got, plain, CudaRowOrder::kGateAndUp, row / 32, row % 32, c);
        if (row / 32 == 1) {
          ASSERT_EQ(value.bits, 0xFFFF);  // No pair: untouched.
        } else {
          ASSERT_EQ(ToFloat(value), RoundToBf16(want[static_cast<size_t>(c)]))
              << ToWord(format) << " row " << row << " col " << c;
        }
      }
    }
  }
}

TEST(WeightsRandomCudaTest, MultipliesWithTheWeightsOfTheCpuReference) {
  LASTFLOP_NEED_GPU();
  for (const WeightFormat format : kPanelFormats) {
    const CudaWeightSlice slice = SliceCase(format, 2, 24, 2176, 3);
    const std::vector<Bf16> in = RandomBf16(5 * 2200, 1);
    const std::vector<int64_t> features = {23, 0, 9};
    const DeviceArray<__nv_bfloat16> device_in(in);
    const DeviceArray<int64_t> device_features(features);
    DeviceArray<float> out(15);
    LASTFLOP_EXPECT_OK(LaunchReferenceGemm(slice, 1, device_in.get(), 2200, 5,
                                           device_features.get(), 3, out.get(), nullptr));
    const CpuCase cpu = CpuOf(slice);
    std::vector<float> want;
    for (size_t t = 0; t < 5; ++t) {
      for (const int64_t feature : features) {
        const std::vector<float> row = CpuRow(cpu, 1, feature);
        double sum = 0;
        for (size_t k = 0; k < row.size(); ++k) {
          sum += static_cast<double>(row[k]) * ToFloat(in[t * 2200 + k]);
        }
        want.push_back(static_cast<float>(sum));
      }
    }
    EXPECT_LE(RowError(std::span<const float>(out.Download()), want, 3), 1e-5) << ToWord(format);
  }
}

TEST(WeightsRandomCudaTest, RefusesSlicesThatDoNotFit) {
  CudaWeightSlice slice = SliceCase(WeightFormat::kInt4G32, 2, 32, 64, 1);
  EXPECT_TRUE(CheckPanels(slice, CudaRowOrder::kPlain).ok());
  EXPECT_EQ(CheckPanels(slice, CudaRowOrder::kGateAndUp).code(),
            absl::StatusCode::kInvalidArgument);
  slice.cols = 48;
  EXPECT_EQ(CheckPanels(slice, CudaRowOrder::kPlain).code(), absl::StatusCode::kInvalidArgument);
  slice.cols = 96;
  EXPECT_EQ(CheckCudaSlice(slice).code(), absl::StatusCode::kInvalidArgument);  // 64 + 96 of 128.
}

}  // namespace
}  // namespace lastflop
