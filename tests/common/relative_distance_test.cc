#include "common/relative_distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lastflop {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(RelativeDistanceTest, IsTheNormOfTheDifferenceOverThatWanted) {
  EXPECT_NEAR(RelativeDistance(std::vector{3.0F, 4.4F}, std::vector{3.0F, 4.0F}), 0.08, 1e-6);
  EXPECT_EQ(RelativeDistance(std::vector{3.0F, 4.0F, 9.0F}, std::vector{3.0F, 4.0F}), 0)
      << "what both have";
}

TEST(RelativeDistanceTest, TakesNothingThatIsNotANumberForEqual) {
  EXPECT_TRUE(std::isnan(RelativeDistance(std::vector{kNan}, std::vector{1.0F})));
  EXPECT_TRUE(std::isnan(RelativeDistance(std::vector{1.0F}, std::vector{kNan})));
  EXPECT_TRUE(std::isnan(RelativeDistance(std::vector{kNan}, std::vector{0.0F})));
}

TEST(RelativeDistanceTest, IsZeroBetweenZerosAlone) {
  EXPECT_EQ(RelativeDistance(std::vector{0.0F}, std::vector{-0.0F}), 0);
  EXPECT_TRUE(std::isinf(RelativeDistance(std::vector{1e-6F}, std::vector{0.0F})));
}

}  // namespace
}  // namespace lastflop
