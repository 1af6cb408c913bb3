#include "common/expand_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace lastflop {
namespace {

using ::testing::HasSubstr;

Intervention Patch(const std::string& id, std::vector<FieldSetting> set) {
  Intervention intervention;
  intervention.id = id;
  intervention.set = std::move(set);
  return intervention;
}

Campaign TwoPoints() {
  Campaign campaign;
  campaign.baseline.parallel.tensor = 8;
  campaign.points.resize(2);
  campaign.points[0].batch = 1;
  campaign.points[1].batch = 64;
  return campaign;
}

TEST(ExpandTrialsTest, StartsWithTheBaselineAgainstItselfAtEachPoint) {
  Campaign campaign = TwoPoints();
  campaign.interventions = {Patch("fused", {{"moe.kernel", "fused"}})};
  const auto trials = ExpandTrials(campaign);
  ASSERT_TRUE(trials.ok()) << trials.status();
  ASSERT_EQ(trials->size(), 4u);
  EXPECT_EQ((*trials)[0].trial_id, "t0001");
  EXPECT_EQ((*trials)[1].intervention_id, kBaselineId);
  EXPECT_EQ((*trials)[1].point_index, 1);
  EXPECT_EQ((*trials)[1].variant, campaign.baseline);
  EXPECT_EQ((*trials)[3].trial_id, "t0004");
  EXPECT_EQ((*trials)[3].intervention_id, "fused");
  EXPECT_EQ((*trials)[3].variant.moe.kernel, MoeKernel::kFused);
  EXPECT_EQ((*trials)[3].variant.parallel.tensor, 8);
  EXPECT_EQ((*trials)[3].baseline, campaign.baseline);
  EXPECT_FALSE((*trials)[3].settled.has_value());
}

TEST(ExpandTrialsTest, MakesATrialOfEveryChoiceAtEveryPoint) {
  Campaign campaign = TwoPoints();
  campaign.interventions = {Patch("sweep", {{"moe.kernel", "fused"}})};
  campaign.interventions[0].try_values = {{"moe.tile_order", {"row_major", "column_major"}},
                                          {"moe.group_m", {"4", "8", "16"}}};
  const auto trials = ExpandTrials(campaign);
  ASSERT_TRUE(trials.ok()) << trials.status();
  ASSERT_EQ(trials->size(), 2u + 2 * 3 * 2);
  EXPECT_EQ((*trials)[4].choice, "moe.tile_order=row_major,moe.group_m=8");
  EXPECT_EQ((*trials)[4].variant.moe.group_m, 8);
  EXPECT_EQ((*trials)[13].choice, "moe.tile_order=column_major,moe.group_m=16");
  EXPECT_EQ((*trials)[13].variant.moe.tile_order, TileOrder::kColumnMajor);
  EXPECT_EQ((*trials)[13].variant.moe.kernel, MoeKernel::kFused);
}

TEST(ExpandTrialsTest, AVariantHoldsThePatchesItNeedsUnderItsOwn) {
  Campaign campaign = TwoPoints();
  campaign.interventions = {Patch("both", {{"moe.group_m", "8"}}),
                            Patch("left", {{"moe.group_m", "4"}, {"moe.kernel", "fused"}}),
                            Patch("root", {{"launch.graph", "full"}, {"moe.kernel", "cutlass"}})};
  campaign.interventions[0].needs = {"left", "root"};
  campaign.interventions[1].needs = {"root"};
  const auto plan = VariantPlan(campaign, campaign.interventions[0], {});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->moe.group_m, 8);
  EXPECT_EQ(plan->moe.kernel, MoeKernel::kFused);  // `left` comes after what it needs.
  EXPECT_EQ(plan->launch.graph, GraphMode::kFull);
}

TEST(ExpandTrialsTest, RefusesNeedsInACircleAndUnknownOnes) {
  Campaign campaign = TwoPoints();
  campaign.interventions = {Patch("a", {}), Patch("b", {})};
  campaign.interventions[0].needs = {"b"};
  campaign.interventions[1].needs = {"a"};
  EXPECT_THAT(std::string(ExpandTrials(campaign).status().message()), HasSubstr("a -> b -> a"));
  campaign.interventions[1].needs = {"c"};
  EXPECT_THAT(std::string(ExpandTrials(campaign).status().message()), HasSubstr("\"c\""));
  campaign.interventions[1].needs = {};
  campaign.interventions[1].set = {{"moe.kernell", "fused"}};
  EXPECT_FALSE(ExpandTrials(campaign).ok());
}

TEST(ExpandTrialsTest, SettlesOnlyTheInfeasibleCells) {
  Campaign campaign = TwoPoints();
  campaign.interventions = {Patch("experts", {}), Patch("other", {})};
  campaign.interventions[0].try_values = {{"parallel.expert", {"5", "8"}}};
  campaign.infeasible = {
      {.intervention_id = "experts", .choice = "parallel.expert=5", .reason = "384 mod 5 = 4"},
      {.intervention_id = "other", .choice = "", .point_index = 0, .reason = "batch 1 over 8"}};
  const auto trials = ExpandTrials(campaign);
  ASSERT_TRUE(trials.ok()) << trials.status();
  std::set<std::string> settled;
  for (const TrialSpec& trial : *trials) {
    if (trial.settled.has_value()) {
      EXPECT_EQ(*trial.settled, Standing::kInfeasible);
      EXPECT_FALSE(trial.settled_reason.empty());
      settled.insert(trial.intervention_id + "/" + trial.choice + "/" +
                     std::to_string(trial.point_index));
    }
  }
  EXPECT_EQ(settled, (std::set<std::string>{"experts/parallel.expert=5/0",
                                            "experts/parallel.expert=5/1", "other//0"}));
}

TEST(ExpandTrialsTest, APointThatTheBaselineDoesNotFitSettlesEveryTrialThere) {
  Campaign campaign = TwoPoints();
  campaign.interventions = {Patch("other", {})};
  campaign.infeasible = {
      {.intervention_id = kBaselineId, .choice = "", .point_index = 0, .reason = "too big"}};
  const auto trials = ExpandTrials(campaign);
  ASSERT_TRUE(trials.ok()) << trials.status();
  for (const TrialSpec& trial : *trials) {
    EXPECT_EQ(trial.settled.has_value(), trial.point_index == 0) << trial.trial_id;
  }
}

TEST(ExpandTrialsTest, ThePlanItAlreadyIsRunsToo) {
  Campaign campaign = TwoPoints();
  campaign.interventions = {Patch("same", {{"parallel.tensor", "8"}})};
  const auto trials = ExpandTrials(campaign);
  ASSERT_TRUE(trials.ok()) << trials.status();
  EXPECT_EQ((*trials)[2].variant, campaign.baseline);
  EXPECT_FALSE((*trials)[2].settled.has_value());
}

}  // namespace
}  // namespace lastflop
