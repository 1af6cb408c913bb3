#include "kernels/cpu/weights_random.h"

#include <cmath>

#include "common/random.h"
#include "gtest/gtest.h"
#include "tests/kernels/moe_case.h"

namespace lastflop {
namespace {

struct Filled {
  PackedLayout layout;
  AlignedBuffer data;
  std::vector<float> Row(int64_t matrix, int64_t row) const {
    std::vector<float> out(static_cast<size_t>(layout.cols));
    UnpackRow({.layout = &layout, .data = data.data()}, matrix, row, out);
    return out;
  }
};

Filled Fill(const WeightSlice& slice, WeightFormat format, int64_t matrices,
            std::vector<int64_t> part_rows, int64_t cols, ThreadPool& pool) {
  Filled filled;
  filled.layout =
      PackedLayout::Create(Storage(format), matrices, std::move(part_rows), cols).value();
  EXPECT_TRUE(CheckSlice(slice, filled.layout).ok());
  filled.data = PoisonedWorkspace(static_cast<int64_t>(filled.layout.bytes()));
  FillRandomWeights(slice, filled.layout, filled.data.data(), pool);
  return filled;
}

WeightSlice Slice(int64_t rows_full, int64_t cols_full) {
  return {.seed = 11,
          .stream = 5,
          .amplitude = std::sqrt(3.0f / static_cast<float>(cols_full)),
          .rows_full = rows_full,
          .cols_full = cols_full,
          .part_row_begin = {0}};
}

class FillRandomWeightsTest : public testing::TestWithParam<WeightFormat> {};

INSTANTIATE_TEST_SUITE_P(Formats, FillRandomWeightsTest,
                         testing::Values(WeightFormat::kBf16, WeightFormat::kInt4G32,
                                         WeightFormat::kInt4G128),
                         [](const auto& format) { return std::string(ToWord(format.param)); });

TEST_P(FillRandomWeightsTest, StoresWhatTheReferenceComputes) {
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    WeightSlice slice = Slice(/*rows_full=*/100, /*cols_full=*/512);
    slice.first_matrix = 3;
    slice.part_row_begin = {10, 60};
    slice.col_begin = 128;
    const Filled filled = Fill(slice, GetParam(), 2, {20, 23}, 256, *pool);
    std::vector<float> expected(256);
    for (int64_t matrix = 0; matrix < 2; ++matrix) {
      for (int64_t row = 0; row < 43; ++row) {
        ReferenceWeightRow(slice, filled.layout, matrix, row, expected);
        ASSERT_EQ(filled.Row(matrix, row), expected) << "matrix " << matrix << " row " << row;
      }
    }
  }
}

TEST_P(FillRandomWeightsTest, SlicesStoreTheSameModel) {
  const std::unique_ptr<ThreadPool> pool = MakePool({DetectVectorIsa(), 2});
  const Filled whole = Fill(Slice(64, 256), GetParam(), 4, {64}, 256, *pool);
  WeightSlice part = Slice(64, 256);
  part.first_matrix = 2;
  part.part_row_begin = {32};
  part.col_begin = 128;
  const Filled sliced = Fill(part, GetParam(), 2, {32}, 128, *pool);
  for (int64_t row = 0; row < 32; ++row) {
    const std::vector<float> full_row = whole.Row(3, 32 + row);
    EXPECT_EQ(sliced.Row(1, row), std::vector<float>(full_row.begin() + 128, full_row.end()));
  }
}

TEST_P(FillRandomWeightsTest, StaysNearTheTrueWeights) {
  const std::unique_ptr<ThreadPool> pool = MakePool({DetectVectorIsa(), 1});
  const WeightSlice slice = Slice(16, 128);
  const Filled filled = Fill(slice, GetParam(), 1, {16}, 128, *pool);
  // Half a step of 15: max / 7 / 2, and the rounding of scale or weight to bf16.
  const float limit = GetParam() == WeightFormat::kBf16 ? slice.amplitude * 0x1.0p-8f
                                                        : slice.amplitude / 14 * 1.07f;
  for (int64_t row = 0; row < 16; ++row) {
    const std::vector<float> weights = filled.Row(0, row);
    for (size_t c = 0; c < 128; ++c) {
      const float truth = TrueWeight(11, 5, static_cast<uint64_t>(row) * 128 + c, slice.amplitude);
      ASSERT_NEAR(weights[c], truth, limit);
    }
  }
}

TEST(WeightSliceTest, HandlesColumnsThatNoDrawOfFourDivides) {
  const std::unique_ptr<ThreadPool> pool = MakePool({DetectVectorIsa(), 1});
  WeightSlice slice = Slice(/*rows_full=*/5, /*cols_full=*/39);
  slice.col_begin = 1;
  const Filled filled = Fill(slice, WeightFormat::kBf16, 2, {5}, 37, *pool);
  std::vector<float> expected(37);
  for (int64_t row = 0; row < 5; ++row) {
    ReferenceWeightRow(slice, filled.layout, 1, row, expected);
    EXPECT_EQ(filled.Row(1, row), expected);
  }
}

TEST(WeightSliceTest, RefusesASliceOutsideTheTensor) {
  const PackedLayout layout =
      PackedLayout::Create(Storage(WeightFormat::kBf16), 1, {8}, 16).value();
  WeightSlice slice = Slice(/*rows_full=*/8, /*cols_full=*/16);
  EXPECT_TRUE(CheckSlice(slice, layout).ok());
  slice.part_row_begin = {1};
  EXPECT_EQ(CheckSlice(slice, layout).code(), absl::StatusCode::kInvalidArgument);
  slice.part_row_begin = {0, 0};
  EXPECT_EQ(CheckSlice(slice, layout).code(), absl::StatusCode::kInvalidArgument);
  slice.part_row_begin = {0};
  slice.col_begin = 1;
  EXPECT_EQ(CheckSlice(slice, layout).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
