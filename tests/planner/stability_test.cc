#include "planner/stability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/rank.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

TEST(SetStabilityTest, PlacesFarApartHoldInEveryDraw) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.5, 1.5).Measured("b", 1.1, 1.1);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_DOUBLE_EQ(*Find(ranking, "a").place_held, 1);
  EXPECT_DOUBLE_EQ(*Find(ranking, "b").place_held, 1);
}

TEST(SetStabilityTest, TwoThatAreAlikeHoldTheirPlacesInAboutHalfOfTheDraws) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.2, 1.2, 0.02).Measured("b", 1.2, 1.2, 0.02);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_NEAR(*ranking.interventions[0].place_held, 0.5, 0.3);
  EXPECT_NEAR(*ranking.interventions[0].place_held, *ranking.interventions[1].place_held, 1e-12);
}

TEST(SetStabilityTest, AWideEffortUnsettlesWhatASpeedupDoesNot) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.2, 1.2, 0);
  builder.last().effort = {.low_hours = 8, .likely_hours = 40, .high_hours = 400};
  builder.Measured("b", 1.19, 1.19, 0);
  builder.last().effort = {.low_hours = 40, .likely_hours = 41, .high_hours = 42};
  const Ranking by_gain = MakeRanking(builder.results());
  EXPECT_LT(*Find(by_gain, "a").place_held, 0.9);
  EXPECT_GT(*Find(by_gain, "a").place_held, 0.02);
  const Ranking by_impact = MakeRanking(builder.results(), {.order = RankingOrder::kImpact});
  EXPECT_DOUBLE_EQ(*Find(by_impact, "a").place_held, 1);
}

TEST(SetStabilityTest, EffortThatIsSharedIsDrawnOnce) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("ground", 1.1, 1.1, 0);
  builder.last().effort = {.low_hours = 1, .likely_hours = 10, .high_hours = 100};
  builder.Measured("top", 1.3, 1.3, 0);
  builder.last().needs = {"ground"};
  builder.last().effort = {.low_hours = 1, .likely_hours = 1, .high_hours = 1};
  builder.results().campaign.economics.gpu_hours = 1000;
  builder.results().campaign.economics.engineer_hour_in_gpu_hours = 10;
  // `top` costs an hour more than `ground` in every draw.
  EXPECT_DOUBLE_EQ(*Find(MakeRanking(builder.results()), "top").place_held, 1);
}

TEST(SetStabilityTest, WhatHasNoPlaceHoldsNone) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.2, 1.2).Failed("b", FailureKind::kCrashed, "signal 9");
  EXPECT_FALSE(Find(MakeRanking(builder.results()), "b").place_held.has_value());
}

TEST(SetStabilityTest, TheSameResultsGiveTheSameShares) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("a", 1.2, 1.2, 0.02).Measured("b", 1.21, 1.21, 0.02);
  EXPECT_EQ(*Find(MakeRanking(builder.results()), "a").place_held,
            *Find(MakeRanking(builder.results()), "a").place_held);
}

TEST(ParetoOrderTest, TheFrontComesFirstAndInItTheCheapest) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("dear", 1.5, 1.5, 0);
  builder.last().effort = {.low_hours = 100, .likely_hours = 100, .high_hours = 100};
  builder.Measured("cheap", 1.2, 1.2, 0).Measured("beaten", 1.1, 1.1, 0);
  builder.Measured("same", 1.0, 1.0, 0);
  const Ranking ranking = MakeRanking(builder.results(), {.order = RankingOrder::kPareto});
  EXPECT_EQ(ranking.interventions[0].id, "cheap");
  EXPECT_EQ(ranking.interventions[1].id, "dear");
  EXPECT_EQ(ranking.interventions[2].id, "beaten");
  EXPECT_EQ(ranking.interventions[0].pareto_layer, 1);
  EXPECT_EQ(ranking.interventions[1].pareto_layer, 1);
  EXPECT_EQ(ranking.interventions[2].pareto_layer, 2);
  EXPECT_EQ(ranking.interventions[3].pareto_layer, std::nullopt) << "no faster than doing nothing";
}

TEST(PerHourOrderTest, CountsTheHoursOfWhatIsNeededToo) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("ground", 1.001, 1.001, 0);
  builder.last().effort = {.low_hours = 100, .likely_hours = 100, .high_hours = 100};
  builder.Measured("top", 1.3, 1.3, 0);
  builder.last().needs = {"ground"};
  builder.Measured("alone", 1.1, 1.1, 0);
  const Ranking ranking = MakeRanking(builder.results(), {.order = RankingOrder::kPerHour});
  EXPECT_EQ(ranking.interventions[0].id, "alone");
}

}  // namespace
}  // namespace lastflop
