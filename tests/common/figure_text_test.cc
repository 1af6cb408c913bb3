#include "common/figure_text.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

TEST(FigureTextTest, WritesWhatAReaderCanUse) {
  EXPECT_EQ(RatioText(0.5), "0.500");
  EXPECT_EQ(FigureText(1.2134, 1.1981, 1.2289), "1.213x (1.198 to 1.229)");
  EXPECT_EQ(FigureText(1.2134, std::nullopt, 1.3), "1.213x");
  EXPECT_EQ(WholeText(-1900.2), "-1900");
  EXPECT_EQ(WholeText(1900, /*sign=*/true), "+1900");
  EXPECT_EQ(WholeText(-0.3, /*sign=*/true), "0");
  EXPECT_EQ(PercentText(0.1234), "12.3%");
  EXPECT_EQ(PercentText(883.70 / 192.44 - 1, /*sign=*/true), "+359.2%");
  EXPECT_EQ(PercentText(-0.05, /*sign=*/true), "-5.0%");
}

TEST(FigureTextTest, WritesNumbersThatMeanNothingShortly) {
  // Two launches on a noisy machine gave such an interval.
  EXPECT_EQ(FigureText(1.459, 1.3e-132, 1.6779243421905201e132), "1.459x (<0.001 to >1000)");
  EXPECT_EQ(RatioText(1e9), ">1000");
  EXPECT_EQ(RatioText(0.0004), "<0.001");
  EXPECT_EQ(WholeText(-1.8906353e40), "-1.9e+40");
  EXPECT_EQ(WholeText(1.24e9, /*sign=*/true), "+1.2e+09");
  EXPECT_EQ(WholeText(999999999), "999999999");
  EXPECT_EQ(PercentText(6.69018495093645e18), "6.7e+20%");
  EXPECT_EQ(PercentText(-1e30, /*sign=*/true), "-1.0e+32%");
}

}  // namespace
}  // namespace lastflop
