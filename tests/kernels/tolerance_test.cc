#include "kernels/tolerance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
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

// Kernels that round a weight times its scale to bf16 add 2^-9 times a uniform number to each
// product: 1,000 launches' worth of checked rows, none of which may be called wrong.
TEST(SampledRowErrorTest, TakesRoundedWeightsOfASwigluForWhatTheyAre) {
  constexpr int kRows = 16;
  constexpr int kColumns = 8;
  constexpr int kChecks = 20'000;
  const double rounding = 0x1.0p-9 * 0.5;  // Of a dot product, in its standard deviations.
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  const auto swiglu = [](double gate, double up) { return gate / (1 + std::exp(-gate)) * up; };
  double worst = 0;
  double worst_of_whole_rows = 0;
  for (int check = 0; check < kChecks; ++check) {
    std::vector<float> reference;
    std::vector<float> out;
    for (int i = 0; i < kRows * kColumns; ++i) {
      const double gate = normal(random);
      const double up = normal(random);
      reference.push_back(static_cast<float>(swiglu(gate, up)));
      out.push_back(static_cast<float>(
          swiglu(gate + rounding * normal(random), up + rounding * normal(random))));
    }
    worst = std::max(worst, SampledRowError(out, reference, kColumns));
    worst_of_whole_rows = std::max(worst_of_whole_rows, RowError(out, reference, kColumns));
  }
  EXPECT_LT(worst, 0.75 * Tolerance(4, 7168));
  EXPECT_GT(worst_of_whole_rows, Tolerance(4, 7168)) << "whole rows' measure would do";
}

TEST(SampledRowErrorTest, FindsARowThatIsAnotherRow) {
  std::vector<float> reference(16 * 8, 1.0f);
  for (int i = 40; i < 48; ++i) {
    reference[static_cast<size_t>(i)] = 0.02f;  // A fiftieth of the others.
  }
  std::vector<float> out = reference;
  std::fill(out.begin() + 40, out.begin() + 48, 0.0f);
  EXPECT_GT(SampledRowError(out, reference, 8), Tolerance(4, 7168));
}

TEST(ToleranceTest, GrowsWithRoundingsAndWithTheLengthOfTheSum) {
  EXPECT_LT(Tolerance(0, 2048), 1e-4);
  EXPECT_GT(Tolerance(1, 2048), Tolerance(0, 2048));
  EXPECT_LT(Tolerance(1, 2048), 0.0042);
}

}  // namespace
}  // namespace lastflop
