#include "kernels/cpu/plain_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/fp8.h"

namespace lastflop {
namespace {

constexpr int64_t kMatrices = 3;
constexpr int64_t kPartRows = 128;
constexpr int64_t kCols = 256;

template <typename T>
T At(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

// A weight as the header of plugins says that it lies.
float Read(const PlainLayout& plain, const std::byte* data, int64_t matrix, int64_t row,
           int64_t col) {
  const int64_t index = (matrix * plain.rows + row) * plain.cols + col;
  const std::byte* const scales = data + plain.scale_begin;
  const int64_t group = plain.storage.group_size;
  switch (plain.storage.format) {
    case WeightFormat::kBf16:
      return ToFloat(At<Bf16>(data, index));
    case WeightFormat::kFp8Block: {
      const int64_t block = (matrix * (plain.rows / 128) + row / 128) * (plain.cols / 128);
      return ToFloat(At<Fp8>(data, index)) * At<float>(scales, block + col / 128);
    }
    default: {
      const auto byte = At<uint8_t>(data, index / 2);
      const int code = (col % 2 == 0 ? byte & 15 : byte >> 4) - 8;
      return static_cast<float>(code) * ToFloat(At<Bf16>(scales, index / group));
    }
  }
}

TEST(PlainWeightsTest, HoldTheValuesThatReferencesMultiply) {
  auto pool = ThreadPool::Create({});
  ASSERT_TRUE(pool.ok()) << pool.status();
  const WeightSlice slice{.seed = 5,
                          .stream = 9,
                          .amplitude = 0.11f,
                          .rows_full = 4 * kPartRows,
                          .cols_full = 2 * kCols,
                          .first_matrix = 2,
                          .part_row_begin = {kPartRows, 3 * kPartRows},
                          .col_begin = kCols};
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt4G32,
                                    WeightFormat::kInt4G128, WeightFormat::kFp8Block}) {
    const auto layout =
        PackedLayout::Describe(StorageOf(format), kMatrices, {kPartRows, kPartRows}, kCols);
    ASSERT_TRUE(layout.ok()) << layout.status();
    const auto plain = PlainLayout::Create(StorageOf(format), kMatrices, 2 * kPartRows, kCols);
    ASSERT_TRUE(plain.ok()) << plain.status();
    std::vector<std::byte> data(plain->bytes());
    FillPlainWeights(slice, *layout, *plain, data.data(), **pool);
    std::vector<float> reference(kCols);
    for (int64_t matrix = 0; matrix < kMatrices; ++matrix) {
      for (const int64_t row : {int64_t{0}, kPartRows - 1, kPartRows, 2 * kPartRows - 1}) {
        ReferenceWeightRow(slice, *layout, matrix, row, reference);
        for (int64_t col = 0; col < kCols; ++col) {
          ASSERT_EQ(Read(*plain, data.data(), matrix, row, col),
                    reference[static_cast<size_t>(col)])
              << ToWord(format) << " " << matrix << " " << row << " " << col;
        }
      }
    }
  }
}

TEST(PlainWeightsTest, RefusesWhatDoesNotDivide) {
  const auto left_over = PlainLayout::Create(StorageOf(WeightFormat::kInt4G128), 1, 4, 96);
  EXPECT_EQ(left_over.status().code(), absl::StatusCode::kInvalidArgument) << left_over.status();
  const auto sparse = PlainLayout::Create(StorageOf(WeightFormat::kInt4G32Sparse24), 1, 4, 64);
  EXPECT_EQ(sparse.status().code(), absl::StatusCode::kUnimplemented) << sparse.status();
}

}  // namespace
}  // namespace lastflop
