#include "kernels/tolerance.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

TEST(RowErrorTest, IsTheLargestRelativeErrorOfARow) {
  const std::vector<float> reference = {3, 4, 300, 400};
  const std::vector<float> out = {3, 4.5f, 300, 400};
  EXPECT_NEAR(RowError(out, reference, 2), 0.1, 1e-6);
}

TEST(RowErrorTest, DoesNotLetABadRowHideBehindGoodOnes) {
  std::vector<float> reference(1000, 1.0f);
  std::vector<float> out = reference;
  out[500] = 0;
  EXPECT_NEAR(RowError(out, reference, 10), std::sqrt(0.1), 1e-6);
}

TEST(RowErrorTest, MeasuresARowThatCancelsAgainstTheOthers) {
  const std::vector<float> reference = {1, 1, 1e-9f, 0};
  const std::vector<float> out = {1, 1, 2e-9f, 0};
  EXPECT_LT(RowError(out, reference, 2), 1e-6);
}

TEST(RowErrorTest, IsInfiniteForNanAndForAValueWhereAllIsZero) {
  EXPECT_TRUE(std::isinf(RowError(std::vector<float>{std::nanf("")}, std::vector<float>{1.0f}, 1)));
  EXPECT_TRUE(std::isinf(RowError(std::vector<float>{1.0f}, std::vector<float>{0.0f}, 1)));
  EXPECT_EQ(RowError(std::vector<float>{0.0f}, std::vector<float>{0.0f}, 1), 0);
  EXPECT_EQ(RowError(std::vector<float>(), std::vector<float>(), 1), 0);
}

TEST(ToleranceTest, GrowsWithRoundingsAndWithTheLengthOfTheSum) {
  EXPECT_LT(Tolerance(0, 2048), 1e-4);
  EXPECT_GT(Tolerance(1, 2048), Tolerance(0, 2048));
  EXPECT_LT(Tolerance(1, 2048), 0.0042);
}

}  // namespace
}  // namespace lastflop
