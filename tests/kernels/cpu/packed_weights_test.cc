#include "kernels/cpu/packed_weights.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/moe_case.h"

namespace lastflop {
namespace {

TEST(Bf16Test, RoundsToNearestWithTiesToEven) {
  EXPECT_EQ(ToBf16(1.0f).bits, 0x3F80);
  EXPECT_EQ(ToBf16(1.0f + 0x1.0p-8f).bits, 0x3F80);   // Tie: even stays.
  EXPECT_EQ(ToBf16(1.0f + 0x1.8p-7f).bits, 0x3F82);   // Tie: odd goes up.
  EXPECT_EQ(ToBf16(1.0f + 0x1.02p-8f).bits, 0x3F81);  // Above the tie.
  EXPECT_EQ(ToBf16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::nanf("")))));
}

TEST(Int4Test, QuantizesWithTheStoredScale) {
  const std::vector<float> weights = {-3.5f, 1.75f, 0.2f, 0.75f};
  const Bf16 scale = Int4Scale(weights);
  EXPECT_EQ(ToFloat(scale), 0.5f);
  EXPECT_EQ(Int4Quantize(-3.5f, scale), -7);
  EXPECT_EQ(Int4Quantize(1.75f, scale), 4);  // 3.5: ties to even.
  EXPECT_EQ(Int4Quantize(0.2f, scale), 0);
  EXPECT_EQ(Int4Quantize(100.0f, scale), 7);
  EXPECT_EQ(Int4Quantize(-100.0f, scale), -8);
  EXPECT_EQ(Int4Quantize(5.0f, Bf16{}), 0);
}

TEST(PackedLayoutTest, GivesEveryPartPanelsOfItsOwn) {
  const PackedLayout layout =
      PackedLayout::Create(Storage(WeightFormat::kInt4G32), 3, {20, 4}, 64).value();
  ASSERT_EQ(layout.num_panels(), 3);
  EXPECT_EQ(layout.panels[1].first_row, 16);
  EXPECT_EQ(layout.panels[1].num_rows, 4);
  EXPECT_EQ(layout.panels[2].first_row, 20);
  EXPECT_EQ(layout.rows, 24);
  // 16 rows of 64 nibbles and 2 bf16 scales.
  EXPECT_EQ(layout.panel_bytes, 16 * (32 + 4));
}

TEST(PackedLayoutTest, SaysWhatDoesNotDivideOrIsNotThere) {
  const absl::Status uneven =
      PackedLayout::Create(Storage(WeightFormat::kInt4G128), 1, {16}, 192).status();
  EXPECT_EQ(uneven.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(uneven.message().find("192 mod 128 = 64"), absl::string_view::npos);
  EXPECT_EQ(PackedLayout::Create(Storage(WeightFormat::kMxfp4), 1, {16}, 64).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(PackedLayout::Create({.format = WeightFormat::kInt4G32, .group_size = 64}, 1, {16}, 64)
                .status()
                .code(),
            absl::StatusCode::kUnimplemented);
}

TEST(PackMatrixTest, UnpacksToTheRoundedWeights) {
  const PackedLayout layout =
      PackedLayout::Create(Storage(WeightFormat::kBf16), 2, {3, 17}, 5).value();
  AlignedBuffer data = AlignedBuffer::Create(layout.bytes()).value();
  const std::vector<float> values = ToFloats(RandomBf16(20 * 5, /*seed=*/1));
  PackMatrix(layout, 1, values, data.data());
  std::vector<float> row(5);
  for (size_t r = 0; r < 20; ++r) {
    UnpackRow({.layout = &layout, .data = data.data()}, 1, static_cast<int64_t>(r), row);
    EXPECT_THAT(row, testing::ElementsAreArray(std::span(values).subspan(r * 5, 5)));
  }
}

TEST(PackMatrixTest, KeepsInt4ValuesThatAreExact) {
  const Matrices matrices = RandomMatrices(WeightFormat::kInt4G32, 1, {18}, 64, /*integers=*/true,
                                           /*seed=*/2);
  std::vector<float> row(64);
  UnpackRow(matrices.view(), 0, 17, row);
  EXPECT_EQ(row[0], 7);
  for (const float value : row) {
    EXPECT_EQ(value, std::round(value));
  }
}

}  // namespace
}  // namespace lastflop
