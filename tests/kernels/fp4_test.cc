#include "kernels/fp4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/fp8.h"
#include "kernels/cpu/weights_random.h"

namespace lastflop {
namespace {

TEST(Fp4Test, RoundsToTheNearestOfSixteenValuesTiesToEven) {
  for (uint32_t code = 0; code < 16; ++code) {
    if (code != 8) {  // -0 becomes 0.
      EXPECT_EQ(Fp4Quantize(Fp4Value(code)), code);
    }
  }
  EXPECT_EQ(Fp4Value(7), 6);
  EXPECT_EQ(Fp4Value(15), -6);
  EXPECT_EQ(Fp4Value(Fp4Quantize(1e9f)), 6);
  for (const auto& [value, wanted] : {std::pair{0.25f, 0.0f},
                                      {0.75f, 1.0f},
                                      {1.25f, 1.0f},
                                      {1.75f, 2.0f},
                                      {2.5f, 2.0f},
                                      {3.5f, 4.0f},
                                      {-5.0f, -4.0f},
                                      {0.26f, 0.5f},
                                      {5.01f, 6.0f}}) {
    EXPECT_EQ(Fp4Value(Fp4Quantize(value)), wanted) << value;
  }
}

TEST(Fp4Test, ScalesOfGroupsAreE4m3WithinTheNormalNumbers) {
  const float of_tensor = Nvfp4TensorScale(0.02f);
  EXPECT_EQ(Nvfp4ScaleValue(Nvfp4GroupScale(0.02f, of_tensor)), 448.0f);
  EXPECT_EQ(Nvfp4ScaleValue(Nvfp4GroupScale(1.0f, of_tensor)), 448.0f);
  EXPECT_EQ(Nvfp4ScaleValue(Nvfp4GroupScale(0.0f, of_tensor)), 0x1p-6f);
  EXPECT_EQ(Nvfp4ScaleValue(Nvfp4GroupScale(0.0f, 0.0f)), 0x1p-6f);
  for (float absmax = 0.02f; absmax > 0.001f; absmax *= 0.97f) {
    const Fp8 wanted = ToFp8(absmax / (6.0f * of_tensor));
    EXPECT_EQ(Nvfp4GroupScale(absmax, of_tensor), wanted.bits) << absmax;
  }
}

TEST(Fp4Test, PowersOfTwoBringTheLargestBetweenFourAndEight) {
  for (const float absmax : {0.013f, 0.5f, 1.0f, 7.9f, 1000.0f}) {
    const float largest = absmax / Mxfp4ScaleValue(Mxfp4GroupScale(absmax));
    EXPECT_GE(largest, 4.0f);
    EXPECT_LT(largest, 8.0f);
  }
  EXPECT_EQ(Mxfp4ScaleValue(Mxfp4GroupScale(0.0f)), 0x1p-100f);
}

// Rows of a small tensor in `format`, and as they are.
double ErrorOf(WeightFormat format) {
  const WeightSlice slice = {
      .seed = 3, .amplitude = 0.05f, .rows_full = 8, .cols_full = 256, .part_row_begin = {0}};
  const auto row_of = [&](WeightFormat stored) {
    const auto layout = PackedLayout::Describe(StorageOf(stored), 1, {8}, 256);
    EXPECT_TRUE(layout.ok()) << layout.status();
    std::vector<float> row(256);
    ReferenceWeightRow(slice, *layout, 0, 5, row);
    return row;
  };
  const std::vector<float> got = row_of(format);
  const std::vector<float> exact = row_of(WeightFormat::kBf16);
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (got[i] - exact[i]) * (got[i] - exact[i]);
    norm += exact[i] * exact[i];
  }
  return std::sqrt(error / norm);
}

TEST(Fp4Test, StoredRowsAreNearTheTrueOnes) {
  EXPECT_LT(ErrorOf(WeightFormat::kNvfp4), 0.12);
  EXPECT_LT(ErrorOf(WeightFormat::kMxfp4), 0.15);
}

TEST(Fp4Test, TheCpuBackendDescribesButDoesNotPackIt) {
  EXPECT_EQ(PackedLayout::Create(StorageOf(WeightFormat::kNvfp4), 1, {8}, 256).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(PackedLayout::Describe(StorageOf(WeightFormat::kNvfp4), 1, {8}, 40).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
