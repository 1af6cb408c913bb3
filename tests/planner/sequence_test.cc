#include "planner/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "planner/rank.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Ids(const Ranking& ranking) {
  std::vector<std::string> ids;
  for (const SequenceStep& step : ranking.sequence) {
    ids.push_back(step.id);
  }
  return ids;
}

TEST(RecommendSequenceTest, StacksTheProductOfTheSpeedupsAndInventsNoMeasuredStack) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.2, 1.2, 0).Measured("b", 1.1, 1.1, 0);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(Ids(ranking), ElementsAre("a", "b"));
  EXPECT_NEAR(ranking.sequence[1].expected_stack, 1.32, 1e-9);
  EXPECT_DOUBLE_EQ(ranking.sequence[1].cumulative_effort_hours, 16);
  EXPECT_FALSE(ranking.sequence[1].measured_stack.has_value());
}

TEST(RecommendSequenceTest, FillsTheBudgetWithTheBestSetNotTheBestSingle) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("big", 1.25, 1.25, 0);
  builder.last().effort.likely_hours = 24;
  builder.Measured("left", 1.18, 1.18, 0).Measured("right", 1.18, 1.18, 0);
  builder.results().campaign.budget.effort_hours = 24;
  EXPECT_THAT(Ids(MakeRanking(builder.results())), ElementsAre("left", "right"));
}

TEST(RecommendSequenceTest, HonoursExcludesAndPatchesOfTheSameField) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.3, 1.3, 0);
  builder.last().excludes = {"b"};
  builder.last().set = {{.path = "moe.kernel", .value = "fused"}};
  builder.Measured("b", 1.1, 1.1, 0).Measured("c", 1.05, 1.05, 0);
  builder.last().set = {{.path = "moe.kernel", .value = "reference"}};
  EXPECT_THAT(Ids(MakeRanking(builder.results())), ElementsAre("a"));
}

TEST(RecommendSequenceTest, HoldsASweepToWhatItChose) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("set", 1.3, 1.3, 0);
  builder.last().set = {{.path = "collectives.all_reduce", .value = "two_shot"}};
  Intervention swept = builder.last();
  swept.id = "swept";
  swept.set.clear();
  swept.try_values = {{"collectives.all_reduce", {"one_shot"}}};
  builder.results().campaign.interventions.push_back(swept);
  builder.AddTrial("swept", 0, "collectives.all_reduce=one_shot", 1000, 1.2, 0);
  builder.AddTrial("swept", 1, "collectives.all_reduce=one_shot", 4000, 1.2, 0);
  EXPECT_THAT(Ids(MakeRanking(builder.results())), ElementsAre("set"));
}

TEST(RecommendSequenceTest, TakesAPatchThatSetsAnewWhatItNeedsHasSet) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("ground", 1.2, 1.2, 0);
  builder.last().set = {{.path = "collectives.all_reduce", .value = "two_shot"}};
  builder.Measured("over", 1.5, 1.5, 0);
  builder.last().needs = {"ground"};
  builder.last().set = {{.path = "collectives.all_reduce", .value = "one_shot"}};
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(Ids(ranking), ElementsAre("ground", "over"));
  EXPECT_NEAR(ranking.sequence[1].expected_stack, 1.5, 1e-9) << "as it was measured";
}

TEST(RecommendSequenceTest, BuildsWhatIsNeededFirstAndCountsItOnce) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("top", 1.5, 1.5, 0);
  builder.last().needs = {"ground"};
  builder.Measured("ground", 1.2, 1.2, 0);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(Ids(ranking), ElementsAre("ground", "top"));
  // `top` was measured with `ground` in place.
  EXPECT_NEAR(ranking.sequence[1].expected_stack, 1.5, 1e-9);
  // Its gain pays for both, and is lost when one of them fails.
  EXPECT_NEAR(Find(ranking, "top").gain->net_gpu_hours, 50000 * (1 - 1 / 1.5) * 0.64 - 16 * 40,
              1e-6);
}

TEST(RecommendSequenceTest, LeavesOutWhatARiskyNeedMakesALoss) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("ground", 1.2, 1.2, 0);
  builder.last().risk = Risk::kHigh;
  builder.Measured("top", 1.25, 1.25, 0);
  builder.last().needs = {"ground"};
  builder.last().risk = Risk::kLow;
  // Its own part, 1.25 / 1.2, saves 4% of 50,000 GPU-hours: 1,900 at its own chance of 0.95, 950 as
  // it hangs on `ground`. It costs 1,200.
  builder.last().effort.likely_hours = 30;
  EXPECT_THAT(Ids(MakeRanking(builder.results())), ElementsAre("ground"));
}

TEST(RecommendSequenceTest, TakesAlongANeededOneThatIsNotFasterItself) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("top", 1.5, 1.5, 0);
  builder.last().needs = {"enabler"};
  builder.Measured("enabler", 1.0, 1.0, 0);
  EXPECT_THAT(Ids(MakeRanking(builder.results())), ElementsAre("enabler", "top"));
}

TEST(RecommendSequenceTest, MultipliesAtEachPointAndThenMixesByTime) {
  CampaignBuilder builder;  // A quarter of the time is batch 1.
  builder.Baseline(1000).Measured("small", 2.0, 1.0, 0).Measured("large", 1.0, 1.5, 0);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(Ids(ranking), ElementsAre("large", "small"));
  EXPECT_NEAR(ranking.sequence[1].expected_stack, 1 / (0.25 / 2 + 0.75 / 1.5), 1e-9);
}

TEST(RecommendSequenceTest, SwitchableOnesOfOneFieldTakeTurns) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("small", 2.0, 1.1, 0);
  builder.last().switchable = Switchable::kPerBatch;
  builder.last().set = {{.path = "moe.kernel", .value = "fused"}};
  builder.Measured("large", 1.1, 1.5, 0);
  builder.last().switchable = Switchable::kPerBatch;
  builder.last().set = {{.path = "moe.kernel", .value = "cutlass"}};
  const Ranking ranking = MakeRanking(builder.results());
  ASSERT_THAT(Ids(ranking), ElementsAre("large", "small"));
  EXPECT_THAT(ranking.sequence[0].on_at, ElementsAre("decode b64 c4096"));
  EXPECT_THAT(ranking.sequence[1].on_at, ElementsAre("decode b1 c4096"));
  EXPECT_NEAR(ranking.sequence[1].expected_stack, 1 / (0.25 / 2 + 0.75 / 1.5), 1e-9);
}

TEST(RecommendSequenceTest, IsOffWhereItIsSlower) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 2.0, 0.5, 0);
  builder.last().switchable = Switchable::kPerBatch;
  const Ranking ranking = MakeRanking(builder.results());
  ASSERT_THAT(Ids(ranking), ElementsAre("a"));
  EXPECT_THAT(ranking.sequence[0].on_at, ElementsAre("decode b1 c4096"));
  EXPECT_NEAR(ranking.sequence[0].expected_stack, 1 / (0.25 / 2 + 0.75), 1e-9);
}

TEST(RecommendSequenceTest, LeavesOutLossyOnesAndWhatDoesNotEarnItsEffort) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("lossy", 1.5, 1.5, 0);
  builder.last().quality = Quality::kLossy;
  builder.Measured("dear", 1.05, 1.05, 0);
  builder.last().effort.likely_hours = 4000;
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(ranking.sequence, IsEmpty());
  EXPECT_THAT(ranking.answer, testing::HasSubstr("does not earn its effort"));
}

// Trials of `id` run on `data` replicas.
void SetReplicas(CampaignBuilder& builder, const std::string& id, int64_t data) {
  builder.results().machine.backend = "cuda";
  for (TrialRecord& trial : builder.results().trials) {
    if (trial.spec.intervention_id == id) {
      trial.spec.variant.parallel.data = data;
    }
  }
}

TEST(RecommendSequenceTest, BuysNoSpeedupWithMoreGpusThanItSaves) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("replicas", 1.5, 1.5, 0).Measured("tuned", 1.1, 1.1, 0);
  SetReplicas(builder, "replicas", 2);
  for (const bool has_economics : {true, false}) {
    if (!has_economics) {
      builder.results().campaign.economics.gpu_hours.reset();
    }
    for (const RankingOrder order : {RankingOrder::kNetGain, RankingOrder::kImpact,
                                     RankingOrder::kPerHour, RankingOrder::kPareto}) {
      const Ranking ranking = MakeRanking(builder.results(), {.order = order});
      EXPECT_THAT(Ids(ranking), ElementsAre("tuned"));
      const RankedIntervention& replicas = Find(ranking, "replicas");
      EXPECT_EQ(replicas.effect, Effect::kFaster) << "in time";
      EXPECT_EQ(replicas.place, 2) << ToWord(order);
      EXPECT_FALSE(replicas.pareto_layer.has_value());
      EXPECT_FALSE(replicas.break_even_gpu_hours.has_value());
      EXPECT_THAT(replicas.reason, testing::HasSubstr("takes 2 GPUs instead of 1: 1.33x the"));
      EXPECT_THAT(ranking.order_note, testing::HasSubstr("on more GPUs counts over"));
      if (has_economics) {
        EXPECT_NEAR(replicas.gain->net_gpu_hours, 50000 * (1 - 2 / 1.5) * 0.8 - 320, 1e-6);
        EXPECT_LT(*replicas.gain->high, 0);
      }
    }
  }
}

TEST(RecommendSequenceTest, CountsTheGpusOfWhatIsNeededOnce) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("ground", 1.9, 1.9, 0).Measured("top", 2.5, 2.5, 0);
  builder.last().needs = {"ground"};
  SetReplicas(builder, "ground", 2);
  SetReplicas(builder, "top", 2);
  builder.results().campaign.interventions[0].risk = Risk::kLow;
  builder.results().campaign.interventions[1].risk = Risk::kLow;
  const Ranking ranking = MakeRanking(builder.results());
  ASSERT_THAT(Ids(ranking), ElementsAre("ground", "top"));
  const double ground = 1 - 0.95 * (1 - 2 / 1.9);
  const double top = 1 - 0.95 * 0.95 * (1 - 1.9 / 2.5);
  EXPECT_NEAR(*ranking.sequence_net_gpu_hours, 50000 * (1 - ground * top) - 640, 1e-6);
  EXPECT_THAT(ranking.answer, testing::HasSubstr("Build ground first: 1.9"));
  EXPECT_THAT(ranking.answer, testing::HasSubstr("on 2 GPUs instead of 1"));
  EXPECT_THAT(ranking.answer, testing::HasSubstr("GPU-hours net together"));
  EXPECT_THAT(ranking.answer, testing::Not(testing::HasSubstr(", -"))) << "a loss";
}

TEST(RecommendSequenceTest, TakesTwoTogetherThatPayForWhatBothNeedOnlyTogether) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("ground", 1.0, 1.0, 0);
  builder.last().effort.likely_hours = builder.last().effort.high_hours = 100;
  builder.Measured("a", 1.1, 1.1, 0);
  builder.last().needs = {"ground"};
  builder.Measured("b", 1.1, 1.1, 0);
  builder.last().needs = {"ground"};
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_LT(Find(ranking, "a").gain->net_gpu_hours, 0);
  EXPECT_THAT(Ids(ranking), ElementsAre("ground", "a", "b"));
}

}  // namespace
}  // namespace lastflop
