#include "common/numbers.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace lastflop {
namespace {

TEST(NumbersTest, ReadsPlainWholeNumbersOnly) {
  EXPECT_EQ(*ParseInteger("0"), 0);
  EXPECT_EQ(*ParseInteger("-7"), -7);
  EXPECT_EQ(*ParseInteger("9223372036854775807"), std::numeric_limits<int64_t>::max());
  // Each of these is 64, 8, 1000 or something else, depending on who reads it.
  for (const char* text : {"0100", "08", "1_000", "1e3", "8.0", "0x10", "+5", "", " 5", "5 ", "-",
                           ".nan", ".inf", "9223372036854775808", "00"}) {
    EXPECT_FALSE(ParseInteger(text).ok()) << text;
  }
}

TEST(NumbersTest, ReadsFiniteDecimalNumbersOnly) {
  EXPECT_EQ(*ParseNumber("0.75"), 0.75);
  EXPECT_EQ(*ParseNumber("1e-3"), 0.001);
  EXPECT_EQ(*ParseNumber("-2"), -2);
  for (const char* text : {"nan", ".nan", "inf", ".inf", "-inf", "1e999", "010", "0x1p3", "1_0", "",
                           ".5", "5 %", "--1"}) {
    EXPECT_FALSE(ParseNumber(text).ok()) << text;
  }
}

TEST(NumbersTest, PrintsTheShortestTextThatReadsBackAsTheSameValue) {
  EXPECT_EQ(NumberText(0.1), "0.1");
  EXPECT_EQ(NumberText(32), "32");
  for (const double value : {1.0 / 3.0, 1e-300, 123456789.125}) {
    EXPECT_EQ(*ParseNumber(NumberText(value)), value);
  }
}

}  // namespace
}  // namespace lastflop
