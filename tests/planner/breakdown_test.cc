#include "planner/breakdown.h"

#include <gtest/gtest.h>

#include <vector>

namespace lastflop {
namespace {

AttemptResult WithBreakdown(std::vector<BreakdownEntry> entries, double step_us) {
  AttemptResult result;
  result.breakdown = std::move(entries);
  result.breakdown_step_us = step_us;
  result.breakdown_method = "host timeline";
  return result;
}

std::optional<StepBreakdown> Merge(const std::vector<AttemptResult>& results) {
  std::vector<const AttemptResult*> pointers;
  for (const AttemptResult& result : results) {
    pointers.push_back(&result);
  }
  return MergeBreakdowns(pointers);
}

double SumOfShares(const std::vector<BreakdownShare>& parts) {
  double sum = 0;
  for (const BreakdownShare& part : parts) {
    sum += part.share;
  }
  return sum;
}

TEST(MergeBreakdownsTest, ClosesToTheStepWithTheResidualShown) {
  const auto breakdown = Merge({WithBreakdown({{OpCategory::kMoe, "moe.gate_up", 400},
                                               {OpCategory::kMoe, "moe.down", 200},
                                               {OpCategory::kAttention, "attention", 300}},
                                              1000)});
  EXPECT_DOUBLE_EQ(breakdown->residual_us, 100);
  EXPECT_DOUBLE_EQ(SumOfShares(breakdown->categories), 1);
  EXPECT_EQ(breakdown->categories[0].category, OpCategory::kMoe);
  EXPECT_DOUBLE_EQ(breakdown->categories[0].share, 0.6);
  EXPECT_EQ(breakdown->categories[2].category, OpCategory::kHost);
}

TEST(MergeBreakdownsTest, NeverSumsOverlappedPartsAboveTheStep) {
  const auto breakdown = Merge({WithBreakdown(
      {{OpCategory::kMoe, "moe", 900}, {OpCategory::kCollective, "all_reduce", 300}}, 1000)});
  EXPECT_DOUBLE_EQ(SumOfShares(breakdown->categories), 1);
  EXPECT_DOUBLE_EQ(breakdown->overlap_us, 200);
  EXPECT_DOUBLE_EQ(breakdown->categories[0].us, 750);
}

TEST(MergeBreakdownsTest, TakesTheMedianOverLaunchesAndSkipsFailures) {
  AttemptResult failed = WithBreakdown({{OpCategory::kMoe, "moe", 1}}, 1);
  failed.failure = Failure{};
  const auto breakdown = Merge({WithBreakdown({{OpCategory::kMoe, "moe", 500}}, 1000),
                                WithBreakdown({{OpCategory::kMoe, "moe", 9000}}, 9000),
                                WithBreakdown({{OpCategory::kMoe, "moe", 520}}, 1010), failed});
  EXPECT_DOUBLE_EQ(breakdown->step_us, 1010);
  EXPECT_DOUBLE_EQ(breakdown->ops[0].us, 520);
  EXPECT_FALSE(Merge({failed}).has_value());
}

TEST(MergeBreakdownsTest, ClaimsAllOfAStepWhosePartsAreItsSum) {
  // 0.1 + 0.2 + 0.3 is not 0.6 in this order or that.
  const auto breakdown = Merge({WithBreakdown(
      {{OpCategory::kMoe, "a", 0.1}, {OpCategory::kMoe, "b", 0.2}, {OpCategory::kMoe, "c", 0.3}},
      0.3 + 0.2 + 0.1 + 1e-16)});
  ASSERT_EQ(breakdown->ops.size(), 3U);
  EXPECT_EQ(breakdown->residual_us, 0);
  EXPECT_EQ(breakdown->overlap_us, 0);
}

TEST(MixBreakdownTest, SharesAreOfServingTime) {
  BaselinePoint fast;
  fast.time_share = 0.25;
  fast.breakdown_step_us = 100;
  fast.breakdown = {{OpCategory::kMoe, 100, 1}};
  BaselinePoint slow;
  slow.time_share = 0.75;
  slow.breakdown_step_us = 300;
  slow.breakdown = {{OpCategory::kDense, 300, 1}};
  const std::vector<BaselinePoint> points = {fast, slow};
  std::optional<double> step_us;
  const std::vector<BreakdownShare> mix = MixBreakdown(points, step_us);
  EXPECT_DOUBLE_EQ(mix[0].share, 0.75);
  EXPECT_DOUBLE_EQ(mix[1].share, 0.25);
  // As many steps at each point: 0.25 / 100 = 0.75 / 300.
  EXPECT_DOUBLE_EQ(*step_us, 200);
  EXPECT_DOUBLE_EQ(mix[0].us + mix[1].us, 200);
}

TEST(MixBreakdownTest, IsNotAvailableWhereAPointHasNone) {
  const std::vector<BaselinePoint> points = {BaselinePoint{}};
  std::optional<double> step_us = 1;
  EXPECT_TRUE(MixBreakdown(points, step_us).empty());
  EXPECT_FALSE(step_us.has_value());
}

}  // namespace
}  // namespace lastflop
