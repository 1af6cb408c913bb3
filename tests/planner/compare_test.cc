#include "planner/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

ComparedCampaign Side(CampaignBuilder& builder) { return {.results = builder.results()}; }

const ComparedCell& Cell(const CampaignComparison& comparison, const std::string& id, size_t nth) {
  for (const ComparedCell& cell : comparison.cells) {
    if (cell.intervention_id == id && nth-- == 0) {
      return cell;
    }
  }
  return comparison.cells.at(comparison.cells.size());  // Throws: the test names it.
}

TEST(CompareCampaignsTest, FindsNothingBetweenTwoRunsOfTheSame) {
  CampaignBuilder a;
  a.Baseline(1000).Measured("one", 1.2, 1.3);
  CampaignBuilder b;
  b.Baseline(1000).Measured("one", 1.2, 1.3);
  const CampaignComparison comparison = CompareCampaigns(Side(a), Side(b));
  ASSERT_EQ(comparison.cells.size(), 4);
  EXPECT_EQ(comparison.num_regressions, 0);
  for (const ComparedCell& cell : comparison.cells) {
    EXPECT_NEAR(cell.ratio->estimate, 1, 0.005) << cell.intervention_id;
    EXPECT_NE(cell.effect, Effect::kSlower);
    EXPECT_NE(cell.effect, Effect::kFaster);
  }
  EXPECT_NEAR(*Cell(comparison, "one", 1).speedup_a, 1.3, 0.01);
}

TEST(CompareCampaignsTest, CallsABaselineThatTookATenthLongerARegression) {
  CampaignBuilder a;
  a.Baseline(1000);
  CampaignBuilder b;
  b.Baseline(1100);
  const CampaignComparison comparison = CompareCampaigns(Side(a), Side(b));
  EXPECT_EQ(comparison.num_regressions, 2);
  const ComparedCell& cell = Cell(comparison, kBaselineId, 0);
  EXPECT_EQ(cell.effect, Effect::kSlower);
  EXPECT_NEAR(cell.ratio->estimate, 1 / 1.1, 0.005);
  EXPECT_LT(*cell.ratio->high, 1);
  EXPECT_NEAR(*cell.a_us, 1000, 5);
  EXPECT_EQ(CompareCampaigns(Side(b), Side(a)).num_regressions, 0) << "faster is none";
}

TEST(CompareCampaignsTest, TakesOneSlowLaunchForNoise) {
  CampaignBuilder a;
  a.Baseline(1000);
  CampaignBuilder b;
  b.Baseline(1000);
  for (AttemptRecord& attempt : b.results().attempts) {
    for (PairSample& sample : attempt.result.samples) {
      const double factor = attempt.result.launch == 0 ? 1.15 : 1;
      sample.pair.baseline_us *= factor;
      sample.pair.variant_us *= factor;
    }
  }
  const CampaignComparison comparison = CompareCampaigns(Side(a), Side(b));
  EXPECT_EQ(Cell(comparison, kBaselineId, 0).effect, Effect::kUndecided);
  EXPECT_EQ(comparison.num_regressions, 0);
}

TEST(CompareCampaignsTest, ComparesDevicesThatAlwaysThrottleAsTheyRun) {
  const auto throttle = [](CampaignBuilder& builder) {
    for (AttemptRecord& attempt : builder.results().attempts) {
      for (PairSample& sample : attempt.result.samples) {
        sample.pair.throttled = true;
      }
    }
  };
  CampaignBuilder a;
  a.Baseline(1000);
  throttle(a);
  CampaignBuilder b;
  b.Baseline(3000);
  throttle(b);
  EXPECT_EQ(CompareCampaigns(Side(a), Side(b)).num_regressions, 2);
}

TEST(CompareCampaignsTest, CountsWhatBTriedInVainAndNotWhatItDidNotTry) {
  CampaignBuilder a;
  a.Baseline(1000).Measured("broken", 1.2, 1.2).Measured("left-out", 1.1, 1.1);
  CampaignBuilder b;
  b.Baseline(1000).Failed("broken", FailureKind::kCrashed, "signal 11");
  const CampaignComparison comparison = CompareCampaigns(Side(a), Side(b));
  EXPECT_EQ(comparison.num_regressions, 2);
  EXPECT_THAT(Cell(comparison, "broken", 0).reason, HasSubstr("signal 11"));
  EXPECT_FALSE(Cell(comparison, "left-out", 0).is_regression);
  EXPECT_THAT(Cell(comparison, "left-out", 0).reason, HasSubstr("no such trial"));
}

TEST(CompareCampaignsTest, NamesWhatDiffersAroundThem) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  ComparedCampaign a = Side(builder);
  ComparedCampaign b = Side(builder);
  a.environment = {{"driver", "570"}, {"device", "H200"}, {"data_seed", "1"}};
  b.environment = {{"driver", "580"}, {"device", "H200"}, {"data_seed", "2"}, {"note", "warm"}};
  const CampaignComparison comparison = CompareCampaigns(a, b);
  ASSERT_EQ(comparison.environment.size(), 2);
  EXPECT_EQ(comparison.environment[0].key, "driver");
  EXPECT_EQ(comparison.environment[0].b, "580");
  EXPECT_EQ(comparison.environment[1].a, "");
}

TEST(CompareCampaignsTest, RefusesOtherModelsAndWarnsOfOtherPlansAndRouting) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  ComparedCampaign a = Side(builder);
  ComparedCampaign b = Side(builder);
  a.environment = {{"model", "kimi-k2.5"}, {"baseline_plan", "aa"}, {"routing", "uniform seed 1"}};
  b.environment = a.environment;
  EXPECT_TRUE(CheckComparable(a, b).ok());
  EXPECT_TRUE(CompareCampaigns(a, b).warnings.empty());
  b.environment["baseline_plan"] = "bb";
  b.environment["routing"] = "zipf 1 seed 1";
  EXPECT_TRUE(CheckComparable(a, b).ok());
  const CampaignComparison comparison = CompareCampaigns(a, b);
  ASSERT_EQ(comparison.warnings.size(), 2u);
  EXPECT_THAT(comparison.warnings[0], HasSubstr("different plans"));
  EXPECT_THAT(comparison.warnings[1], HasSubstr("routed differently"));
  b.environment["model"] = "qwen3-30b-a3b";
  const absl::Status status = CheckComparable(a, b);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("kimi-k2.5 and B of qwen3-30b-a3b"));
}

}  // namespace
}  // namespace lastflop
