#include "common/utf8.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

TEST(Utf8Test, AcceptsWellFormedText) {
  EXPECT_EQ(FirstInvalidUtf8(""), std::nullopt);
  EXPECT_EQ(FirstInvalidUtf8("plain"), std::nullopt);
  EXPECT_EQ(FirstInvalidUtf8("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf"),
            std::nullopt);
}

TEST(Utf8Test, SaysWhereTheFirstWrongByteIs) {
  EXPECT_EQ(FirstInvalidUtf8("caf\xe9"), 3u);           // Latin-1.
  EXPECT_EQ(FirstInvalidUtf8("a\xc3"), 1u);             // Cut off.
  EXPECT_EQ(FirstInvalidUtf8("\xc0\xaf"), 0u);          // Overlong.
  EXPECT_EQ(FirstInvalidUtf8("\xe0\x80\xaf"), 0u);      // Overlong.
  EXPECT_EQ(FirstInvalidUtf8("ab\xed\xa0\x80"), 2u);    // Surrogate.
  EXPECT_EQ(FirstInvalidUtf8("\xf4\x90\x80\x80"), 0u);  // Past U+10FFFF.
  EXPECT_EQ(FirstInvalidUtf8("\x80"), 0u);
}

}  // namespace
}  // namespace lastflop
