#include "kernels/cpu/fp8_panel.h"

#include <cmath>
#include <vector>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/cpu/weights_random.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

PackedLayout Layout(WeightFormat format, int64_t rows, int64_t cols) {
  return PackedLayout::Create(StorageOf(format), 1, {rows}, cols).value();
}

TEST(Fp8PanelTest, ScalesABlockByItsLargestWeight) {
  // Two blocks of columns: the largest of the first is 448, of the second 4.48.
  const PackedLayout layout = Layout(WeightFormat::kFp8Block, 3, 130);
  std::vector<float> values(3 * 130, 1.0f);
  values[130 + 7] = -448.0f;
  values[2 * 130 + 129] = 4.48f;
  AlignedBuffer data = AlignedBuffer::Create(layout.bytes()).value();
  PackMatrix(layout, 0, values, data.data());
  std::vector<float> row(130);
  UnpackRow({&layout, data.data()}, 0, 1, row);
  EXPECT_EQ(row[0], 1.0f);
  EXPECT_EQ(row[7], -448.0f);
  UnpackRow({&layout, data.data()}, 0, 2, row);
  EXPECT_FLOAT_EQ(row[129], 4.48f);
  EXPECT_NEAR(row[128], 1.0f, 0.07f);  // 100 of a scale of 0.01 is between 96 and 104.
}

TEST(Fp8PanelTest, ScalesEachRowApartInFp8) {
  const PackedLayout layout = Layout(WeightFormat::kFp8, 2, 5);
  const std::vector<float> values = {448, 1, 1, 1, 1, 0.448f, 0.001f, 0, 0, -0.448f};
  AlignedBuffer data = AlignedBuffer::Create(layout.bytes()).value();
  PackMatrix(layout, 0, values, data.data());
  std::vector<float> row(5);
  UnpackRow({&layout, data.data()}, 0, 1, row);
  EXPECT_FLOAT_EQ(row[0], 0.448f);
  EXPECT_FLOAT_EQ(row[1], 0.001f);
  EXPECT_FLOAT_EQ(row[4], -0.448f);
}

TEST(Fp8PanelTest, FillsTheModelsWeightsAsTheReferenceSays) {
  const std::vector<NamedPool> pools = EveryPool();
  for (const WeightFormat format : {WeightFormat::kFp8Block, WeightFormat::kFp8}) {
    const PackedLayout layout = PackedLayout::Create(StorageOf(format), 2, {20, 7}, 200).value();
    const WeightSlice slice = {.seed = 5,
                               .stream = 3,
                               .amplitude = 0.1f,
                               .rows_full = 90,
                               .cols_full = 333,
                               .first_matrix = 1,
                               .part_row_begin = {11, 60},
                               .col_begin = 100};
    ASSERT_TRUE(CheckSlice(slice, layout).ok());
    AlignedBuffer data = AlignedBuffer::Create(layout.bytes()).value();
    FillRandomWeights(slice, layout, data.data(), *pools.back().pool);
    std::vector<float> stored(200);
    std::vector<float> reference(200);
    for (int64_t matrix = 0; matrix < 2; ++matrix) {
      for (int64_t row = 0; row < 27; ++row) {
        UnpackRow({&layout, data.data()}, matrix, row, stored);
        ReferenceWeightRow(slice, layout, matrix, row, reference);
        ASSERT_EQ(stored, reference);
        const uint64_t full_row = static_cast<uint64_t>((1 + matrix) * 90) +
                                  static_cast<uint64_t>(row < 20 ? 11 + row : 60 + row - 20);
        const float weight = TrueWeight(5, 3, full_row * 333 + 100, 0.1f);
        EXPECT_NEAR(stored[0], weight, std::abs(weight) / 16 + 1e-6f);
      }
    }
  }
}

TEST(Fp8PanelTest, MultipliesEveryCodeInEveryBuild) {
  // A panel whose column c holds the codes 16 c to 16 c + 15: all but NaN are multiplied by one.
  const PackedLayout layout = Layout(WeightFormat::kFp8, 16, 16);
  AlignedBuffer data = AlignedBuffer::Create(layout.bytes()).value();
  for (int64_t c = 0; c < 16; ++c) {
    for (int64_t row = 0; row < 16; ++row) {
      const int64_t code = 16 * c + row;
      *Fp8At(layout, data.data(), row, c) =
          Fp8{static_cast<uint8_t>((code & 0x7F) == 0x7F ? 0 : code)};
      *Fp8ScaleAt(layout, data.data(), row, c) = 0.5f;
    }
  }
  for (const VectorIsa isa : {VectorIsa::kPortable, DetectVectorIsa()}) {
    for (int64_t c = 0; c < 16; ++c) {
      alignas(64) float x[16] = {};
      x[c] = 2;
      alignas(64) float out[16];
      PanelGemm(layout, data.data(),
                {.data = reinterpret_cast<const std::byte*>(x), .row_bytes = 64, .num_rows = 1},
                out, isa);
      for (int64_t row = 0; row < 16; ++row) {
        EXPECT_EQ(out[row], ToFloat(*Fp8At(layout, data.data(), row, c))) << c << " " << row;
      }
    }
  }
}

}  // namespace
}  // namespace lastflop
