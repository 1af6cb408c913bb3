#include "common/shell_quote.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

TEST(ShellQuotedTest, LeavesPlainWordsAndQuotesWhatAShellWouldRead) {
  EXPECT_EQ(ShellQuoted("./runs/lastflop-1.db"), "./runs/lastflop-1.db");
  EXPECT_EQ(ShellQuoted("my runs/a.db"), "'my runs/a.db'");
  EXPECT_EQ(ShellQuoted("$(rm x).db"), "'$(rm x).db'");
  EXPECT_EQ(ShellQuoted("it's.db"), R"('it'\''s.db')");
  EXPECT_EQ(ShellQuoted(""), "''");
}

}  // namespace
}  // namespace lastflop
