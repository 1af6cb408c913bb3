#include "kernels/rms_norm/rms_norm.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;
using testing::FloatEq;

TEST(RmsNormTest, DividesByTheRootMeanSquareAfterAddingTheResidual) {
  const NormShape shape = {.rows = 1, .size = 2, .epsilon = 0, .add_residual = true};
  std::vector<float> residual = {2, 1};
  std::vector<float> out(2);
  // 1 + 2 = 3 and -5 + 1 = -4... whose mean square is 12.5.
  RmsNormReference(shape, Bf16s({1, -5}), residual, Bf16s({1, 2}), out);
  EXPECT_THAT(residual, ElementsAre(3, -4));
  EXPECT_THAT(out, ElementsAre(FloatEq(3 / std::sqrt(12.5f)), FloatEq(-8 / std::sqrt(12.5f))));
}

TEST(RmsNormTest, AgreesWithItsReferenceInEveryBuildAndSize) {
  for (const NamedPool& named : EveryPool()) {
    for (const int64_t rows : {0, 1, 5}) {
      for (const int64_t size : {1, 7, 8, 16, 63, 2048, 7168}) {
        for (const bool add_residual : {false, true}) {
          const NormShape shape = {
              .rows = rows, .size = size, .epsilon = 1e-6, .add_residual = add_residual};
          ASSERT_TRUE(ValidateRmsNorm(shape).ok());
          const std::vector<Bf16> in = RandomValues(rows * size, 1, 3);
          const std::vector<Bf16> gain = RandomValues(size, 2, 2);
          std::vector<Bf16> residual =
              add_residual ? RandomValues(rows * size, 3) : Poison(rows * size);
          std::vector<float> reference_residual =
              add_residual ? Floats(residual) : std::vector<float>(residual.size());
          std::vector<Bf16> out = Poison(rows * size);
          std::vector<float> reference(out.size());
          RmsNormReference(shape, in, reference_residual, gain, reference);
          RmsNorm(shape, in, residual, gain, out, *named.pool);
          EXPECT_EQ(Floats(residual), reference_residual);
          EXPECT_LE(RowError(out, reference, size), Tolerance(1, size))
              << named.name << " rows=" << rows << " size=" << size;
        }
      }
    }
  }
}

TEST(RmsNormTest, NormalizesPartsOfRowsAndLeavesTheRestAlone) {
  for (const NamedPool& named : EveryPool()) {
    for (const int64_t size : {5, 128}) {
      const NormShape shape = {.rows = 3,
                               .size = size,
                               .stride = size * 6 + 1,
                               .parts = 3,
                               .offset = size + 1,
                               .epsilon = 1e-5};
      ASSERT_TRUE(ValidateRmsNorm(shape).ok());
      std::vector<Bf16> data = RandomValues(shape.rows * shape.stride, 4);
      const std::vector<Bf16> before = data;
      const std::vector<Bf16> gain = RandomValues(size, 5, 2);
      std::vector<float> reference(data.size());
      RmsNormPartsReference(shape, data, gain, reference);
      RmsNormParts(shape, data, gain, *named.pool);
      EXPECT_LE(RowError(data, reference, shape.stride), Tolerance(1, size)) << named.name;
      for (int64_t row = 0; row < shape.rows; ++row) {
        EXPECT_EQ(data[static_cast<size_t>(row * shape.stride + size)],
                  before[static_cast<size_t>(row * shape.stride + size)]);
        const auto last = static_cast<size_t>((row + 1) * shape.stride - 1);
        EXPECT_EQ(data[last], before[last]);
      }
    }
  }
}

TEST(RmsNormTest, RefusesPartsThatLeaveTheirRow) {
  EXPECT_FALSE(ValidateRmsNorm({.rows = 1, .size = 8, .stride = 20, .parts = 2, .offset = 5}).ok());
  EXPECT_FALSE(ValidateRmsNorm({.rows = 1, .size = 0}).ok());
}

}  // namespace
}  // namespace lastflop
