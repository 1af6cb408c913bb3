#include "worker/outage.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

using std::chrono::seconds;

TEST(OutageTest, SaysTheFirstFailureEachNewReasonAndEachAgainAfterAMinute) {
  Outage outage;
  const Outage::Clock::time_point start{};
  EXPECT_TRUE(outage.ShouldSay("refused", start));
  EXPECT_FALSE(outage.ShouldSay("refused", start + seconds(2)));
  EXPECT_TRUE(outage.ShouldSay("no route", start + seconds(4)));
  EXPECT_FALSE(outage.ShouldSay("refused", start + seconds(6))) << "reasons that take turns";
  EXPECT_TRUE(outage.ShouldSay("refused", start + seconds(60)));
}

TEST(OutageTest, SaysAFailureAfterAConnectionAtOnce) {
  Outage outage;
  const Outage::Clock::time_point start{};
  EXPECT_TRUE(outage.ShouldSay("refused", start));
  outage.End();
  EXPECT_TRUE(outage.ShouldSay("refused", start + seconds(1)));
}

}  // namespace
}  // namespace lastflop
