#include "common/suggest.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

TEST(SuggestTest, FindsTheNameThatATypingMistakeWasMeantToBe) {
  EXPECT_EQ(NearestName("timeshare", {"batch", "time_share", "context"}), "time_share");
  EXPECT_EQ(NearestName("setts", {"id", "set", "try", "needs"}), "set");
  EXPECT_EQ(NearestName("lable", {"title", "label"}), "label");
  EXPECT_EQ(NearestName("tile-order", {"tile_order"}), "tile_order");
  EXPECT_EQ(NearestName("tensor", {"parallel.tensor", "parallel.data"}), "parallel.tensor");
}

TEST(SuggestTest, SuggestsNothingWhenNothingIsNear) {
  EXPECT_EQ(NearestName("up", {"id", "set"}), "");
  EXPECT_EQ(NearestName("colour", {"batch", "context"}), "");
  EXPECT_EQ(NearestName("", {"id"}), "");
  EXPECT_EQ(DidYouMean("colour", {"batch"}), "");
}

TEST(SuggestTest, EndsAMessageWithAQuestion) {
  EXPECT_EQ(DidYouMean("risc", {"risk"}), "; did you mean \"risk\"?");
}

}  // namespace
}  // namespace lastflop
