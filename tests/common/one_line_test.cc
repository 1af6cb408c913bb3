#include "common/one_line.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

using std::literals::string_view_literals::operator""sv;

absl::string_view View(std::string_view text) { return {text.data(), text.size()}; }

TEST(OneLineTest, KeepsLettersAndBlanksWhatCouldSteerATerminal) {
  EXPECT_EQ(OneLine("caf\xc3\xa9 \xf0\x9f\x98\x80\n\x1b[2J"), "caf\xc3\xa9 \xf0\x9f\x98\x80  [2J");
  EXPECT_EQ(OneLine(View("a\0\x1b[31mb\r\t\x7f"sv)), "a  [31mb   ");
  EXPECT_EQ(OneLine("\xc2\x9b"), " ");          // U+009B: CSI in one character.
  EXPECT_EQ(OneLine("a\xe2\x80\xaez"), "a z");  // U+202E turns what follows around.
  EXPECT_EQ(OneLine("a\xe2\x81\xa6z"), "a z");  // U+2066
  EXPECT_EQ(OneLine("a\xe2\x80\xa8z"), "a z");  // U+2028: a line separator.
}

TEST(OneLineTest, ReplacesBytesThatAreNoUtf8) {
  EXPECT_EQ(OneLine("a\x9b\xc3"), "a\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(OneLineTest, LinesStayLinesWhereSeveralMayStand) {
  EXPECT_EQ(PlainLines("one\n\x1b[1mtwo\r\n"), "one\n [1mtwo \n");
}

}  // namespace
}  // namespace lastflop
