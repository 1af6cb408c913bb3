#include "stats/throttle.h"

#include <vector>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

std::vector<Pair> Pairs(int num_pairs, int num_throttled) {
  std::vector<Pair> pairs;
  for (int i = 0; i < num_pairs; ++i) {
    pairs.push_back(
        {.draw = i, .baseline_us = 10, .variant_us = 10, .throttled = i < num_throttled});
  }
  return pairs;
}

TEST(DropThrottledTest, DropsUpToTheCap) {
  const KeptPairs kept = DropThrottled(Pairs(10, 2), 0.2);
  EXPECT_EQ(kept.num_dropped, 2);
  EXPECT_EQ(kept.pairs.size(), 8u);
  EXPECT_DOUBLE_EQ(kept.throttled_share, 0.2);
  EXPECT_FALSE(kept.is_over_cap);
}

TEST(DropThrottledTest, KeepsAllAboveTheCap) {
  const KeptPairs kept = DropThrottled(Pairs(10, 3), 0.2);
  EXPECT_EQ(kept.num_dropped, 0);
  EXPECT_EQ(kept.pairs.size(), 10u);
  EXPECT_TRUE(kept.is_over_cap);
}

TEST(DropThrottledTest, NoPairsAreNoError) {
  const KeptPairs kept = DropThrottled({}, 0.2);
  EXPECT_TRUE(kept.pairs.empty());
  EXPECT_EQ(kept.throttled_share, 0);
}

TEST(CompareThrottleTest, NamesArmsThatDifferBeyondChance) {
  EXPECT_TRUE(CompareThrottle({30, 2}, {30, 20}).is_power_limited);
  EXPECT_FALSE(CompareThrottle({30, 2}, {30, 4}).is_power_limited);
  EXPECT_FALSE(CompareThrottle({30, 30}, {30, 30}).is_power_limited);
  EXPECT_FALSE(CompareThrottle({30, 0}, {30, 0}).is_power_limited);
  // Fisher's exact tail of 0 of 5 against 4 of 5 is 12/252 = 0.0476; of 5 against 3 it is 0.167.
  EXPECT_TRUE(CompareThrottle({5, 0}, {5, 4}).is_power_limited);
  EXPECT_FALSE(CompareThrottle({5, 0}, {5, 3}).is_power_limited);
}

TEST(CompareThrottleTest, SharesAreAbsentWithoutSamples) {
  const ThrottleShares shares = CompareThrottle({0, 0}, {4, 1});
  EXPECT_FALSE(shares.baseline.has_value());
  EXPECT_DOUBLE_EQ(*shares.variant, 0.25);
  EXPECT_FALSE(shares.is_power_limited);
}

TEST(CompareThrottleTest, CountsEachArmOverAllPairs) {
  std::vector<Pair> pairs = Pairs(10, 6);
  for (int i = 0; i < 6; ++i) {
    pairs[i].variant_throttled = true;
  }
  pairs[0].baseline_throttled = true;
  const ThrottleShares shares = CompareThrottle(pairs);
  EXPECT_DOUBLE_EQ(*shares.baseline, 0.1);
  EXPECT_DOUBLE_EQ(*shares.variant, 0.6);
  EXPECT_FALSE(shares.is_power_limited) << "1 of 10 against 6 of 10: p = 0.057";
  pairs[6].throttled = pairs[6].variant_throttled = true;
  EXPECT_TRUE(CompareThrottle(pairs).is_power_limited) << "1 of 10 against 7 of 10: p = 0.020";
}

TEST(CompareThrottleTest, SaysNothingWhereTheArmWasNotStored) {
  const ThrottleShares shares = CompareThrottle(Pairs(10, 1));
  EXPECT_FALSE(shares.baseline.has_value());
  EXPECT_FALSE(shares.variant.has_value());
  EXPECT_DOUBLE_EQ(*CompareThrottle(Pairs(10, 0)).variant, 0);
}

}  // namespace
}  // namespace lastflop
