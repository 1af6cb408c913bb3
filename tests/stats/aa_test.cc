#include "stats/aa.h"

#include <vector>

#include "gtest/gtest.h"

namespace lastflop {
namespace {

TEST(ExactBinomialIntervalTest, MatchesClopperAndPearson) {
  const auto interval = ExactBinomialInterval(5, 100, 0.95);
  ASSERT_TRUE(interval.ok());
  EXPECT_NEAR(interval->low, 0.01643, 1e-5);
  EXPECT_NEAR(interval->high, 0.11284, 1e-5);
}

TEST(ExactBinomialIntervalTest, ReachesZeroAndOneAtTheEnds) {
  // "The rule of three", exactly: 1 - 0.025^(1/200).
  EXPECT_EQ(ExactBinomialInterval(0, 200, 0.95)->low, 0);
  EXPECT_NEAR(ExactBinomialInterval(0, 200, 0.95)->high, 0.018275, 1e-6);
  EXPECT_EQ(ExactBinomialInterval(7, 7, 0.95)->high, 1);
}

TEST(ExactBinomialIntervalTest, RefusesImpossibleCounts) {
  EXPECT_EQ(ExactBinomialInterval(0, 0, 0.95).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(ExactBinomialInterval(3, 2, 0.95).ok());
  EXPECT_FALSE(ExactBinomialInterval(-1, 2, 0.95).ok());
  EXPECT_FALSE(ExactBinomialInterval(1, 2, 1).ok());
}

TEST(SummarizeAaTest, CountsBothDirectionsAsFalse) {
  const std::vector<Effect> effects = {Effect::kFaster, Effect::kSlower, Effect::kSame,
                                       Effect::kUndecided, Effect::kSame};
  const auto summary = SummarizeAa(effects, 0.95);
  ASSERT_TRUE(summary.ok());
  EXPECT_EQ(summary->num_false, 2);
  EXPECT_EQ(summary->num_same, 2);
  EXPECT_EQ(summary->num_undecided, 1);
  EXPECT_DOUBLE_EQ(summary->false_rate, 0.4);
  EXPECT_LT(summary->interval.low, 0.4);
  EXPECT_GT(summary->interval.high, 0.4);
}

TEST(SummarizeAaTest, RefusesNoTrials) { EXPECT_FALSE(SummarizeAa({}, 0.95).ok()); }

}  // namespace
}  // namespace lastflop
