#include "report/format.h"

#include <gtest/gtest.h>

#include <limits>

namespace lastflop {
namespace {

TEST(FormatTest, WritesWhatIsNotKnownAsNotAvailable) {
  EXPECT_EQ(FormatSpeedup(std::nullopt), "n/a");
  EXPECT_EQ(FormatNumber(std::numeric_limits<double>::quiet_NaN()), "n/a");
  EXPECT_EQ(FormatCount(std::numeric_limits<double>::infinity()), "n/a");
  EXPECT_EQ(FormatPercent(std::nullopt), "n/a");
  EXPECT_EQ(FormatFigure(std::nullopt), "n/a");
}

TEST(FormatTest, PrintsASpeedupUnderOne) { EXPECT_EQ(FormatSpeedup(0.5), "0.500x"); }

TEST(FormatTest, GroupsThousands) {
  EXPECT_EQ(FormatCount(1234567.4), "1,234,567");
  EXPECT_EQ(FormatCount(-1900.2), "-1,900");
  EXPECT_EQ(FormatCount(1900, /*sign=*/true), "+1,900");
  EXPECT_EQ(FormatCount(-0.3, /*sign=*/true), "0");
  EXPECT_EQ(FormatNumber(999.94), "999.9");
  EXPECT_EQ(FormatNumber(1000), "1,000");
}

TEST(FormatTest, KeepsHugeAndTinyNumbersAsNarrowAsAnyOther) {
  const SpeedupFigure wide{.estimate = 1.459, .low = 1e-132, .high = 1.7e132};
  EXPECT_EQ(FormatFigure(wide), "1.459x (<0.001 to >1000)");
  EXPECT_EQ(FormatSpeedup(1e9), ">1000x");
  EXPECT_EQ(FormatCount(-1.8906353e40), "-1.9e+40");
  EXPECT_EQ(FormatNumber(2.5e12), "2.5e+12");
  EXPECT_EQ(FormatPercent(6.69018495093645e18), "6.7e+20%");
}

TEST(FormatTest, GivesNoFigureOfNoiseThatHidesEverything) {
  EXPECT_EQ(FormatDetectable(0.012), "1.2%");
  EXPECT_EQ(FormatDetectable(8.5e9), ">100%");
  EXPECT_EQ(FormatDetectable(std::nullopt), "n/a");
}

TEST(FormatTest, WritesEffortInWorkingTime) {
  EXPECT_EQ(FormatHours(0.5), "30m");
  EXPECT_EQ(FormatHours(6), "6h");
  EXPECT_EQ(FormatHours(24), "3d");
  EXPECT_EQ(FormatHours(80), "2w");
  EXPECT_EQ(FormatHours(0), "0h");
}

TEST(FormatTest, WritesAPredictionErrorWithItsSign) {
  EXPECT_EQ(FormatPercent(883.70 / 192.44 - 1, /*sign=*/true), "+359.2%");
}

TEST(FormatTest, WritesClaimsWithTheirPartAndRange) {
  EXPECT_EQ(FormatClaim(std::nullopt), "none");
  EXPECT_EQ(FormatClaim(Claim{.low = 1.2, .high = 1.5, .batch_low = 64}), "1.2-1.5x, b64-");
  EXPECT_EQ(FormatClaim(Claim{.low = 1.3, .high = std::nullopt, .of = "moe"}), "1.3x+ of moe");
}

TEST(FormatTest, QuotesCsvOnlyWhereItMustAndChangesNothing) {
  EXPECT_EQ(CsvField("plain"), "plain");
  EXPECT_EQ(CsvField("=1+1"), "=1+1");
  EXPECT_EQ(CsvField("a,b"), "\"a,b\"");
  EXPECT_EQ(CsvField("say \"x\"\n"), "\"say \"\"x\"\"\n\"");
  EXPECT_EQ(CsvField(" padded"), "\" padded\"");
}

TEST(FormatTest, LeavesNoControlCharacterInAnyFormat) {
  const absl::string_view hostile("a\0\x1b[31mb\xc2\x9b", 10);
  EXPECT_EQ(EscapeHtml(hostile), "a  [31mb ");
  EXPECT_EQ(EscapeMarkdown(hostile), "a  \\[31mb ");
  EXPECT_EQ(CsvField(hostile), "\"a  [31mb \"");
}

}  // namespace
}  // namespace lastflop
