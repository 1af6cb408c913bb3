#include "cli/row_output.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace lastflop {
namespace {

std::string Written(const std::string& format) {
  // A campaign's name as a file may hold it: NUL, a colour, a line break, C1's CSI.
  const std::string hostile("a|\0\x1b[31m\n\xc2\x9b", 11);
  std::ostringstream out;
  WriteRows({.names = {"name", "trials"},
             .cells = {{hostile, "3"}, {"", "4"}},
             .is_number = {false, true}},
            format, out);
  return out.str();
}

TEST(RowOutputTest, NoTextOfOthersSteersTheTerminal) {
  EXPECT_EQ(Written("table"), "name        trials\na|  [31m         3\nn/a              4\n");
  EXPECT_EQ(Written("md"),
            "| name | trials |\n| --- | --: |\n| a\\|  \\[31m   | 3 |\n| n/a | 4 |\n");
  EXPECT_EQ(Written("csv"), "name,trials\r\n\"a|  [31m\n \",3\r\n,4\r\n");
}

TEST(RowOutputTest, JsonKeepsTheTextWithItsControlsEscaped) {
  const std::string json = Written("json");
  EXPECT_NE(json.find("a|\\u0000\\u001b[31m\\n"), std::string::npos) << json;
  EXPECT_NE(json.find("\"name\": null"), std::string::npos) << json;
}

}  // namespace
}  // namespace lastflop
