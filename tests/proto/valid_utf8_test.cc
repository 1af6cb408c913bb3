#include "proto/valid_utf8.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

TEST(ValidUtf8Test, KeepsWhatIsWellFormed) {
  EXPECT_EQ(ValidUtf8("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
}

TEST(ValidUtf8Test, ReplacesWhatProtobufWouldRefuse) {
  EXPECT_EQ(ValidUtf8("caf\xE9"), "caf?");           // Latin-1.
  EXPECT_EQ(ValidUtf8("\xC0\xAF"), "??");            // Overlong.
  EXPECT_EQ(ValidUtf8("\xED\xA0\x80"), "???");       // A surrogate.
  EXPECT_EQ(ValidUtf8("\xF4\x90\x80\x80"), "????");  // Past U+10FFFF.
  EXPECT_EQ(ValidUtf8("x\xE2\x82"), "x??");          // Cut off.
  EXPECT_EQ(ValidUtf8("\xE2\x82x"), "??x");
}

}  // namespace
}  // namespace lastflop
