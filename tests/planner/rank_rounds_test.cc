#include "planner/rank_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/judge_rounds.h"
#include "tests/planner/campaign_builder.h"
#include "tests/planner/rounds_player.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Selected on 1.35, confirmed at 1.30; the stack of both is 1.35 and not 1.43.
class RankRoundsTest : public testing::Test {
 protected:
  RankRoundsTest()
      : player_({Patch("order", {{"moe.tile_order", "column_major"}}),
                 Patch("tiles", {{"moe.group_m", "2"}}), Patch("clash", {{"moe.group_m", "4"}})},
                [](const TrialSpec& spec) {
                  if (spec.role == TrialRole::kStack) return 1.35;
                  if (spec.role == TrialRole::kLeaveOneOut) return 1.25;
                  if (spec.intervention_id == "clash") return 1.05;
                  if (spec.intervention_id == "order") return spec.round == 1 ? 1.1 : 1.04;
                  return spec.role == TrialRole::kConfirm ? 1.3 : 1.35;
                }) {}

  RoundsPlayer player_;
};

TEST_F(RankRoundsTest, ReportsTheConfirmationAndNotTheSelection) {
  const Ranking ranking = MakeRanking(player_.Play());
  const RankedIntervention& tiles = Find(ranking, "tiles");
  EXPECT_NEAR(tiles.mix->estimate, 1.30, 0.003);
  EXPECT_THAT(tiles.choice_method, HasSubstr("measured again on fresh seeds"));
  EXPECT_EQ(tiles.accepted_round, 1);
  EXPECT_EQ(Find(ranking, "clash").accepted_round, std::nullopt);
  ASSERT_THAT(ranking.rounds, SizeIs(3));
  const RoundEntry& entry = ranking.rounds[0].interventions[0];
  EXPECT_EQ(entry.id, "tiles");
  EXPECT_TRUE(entry.is_accepted);
  EXPECT_NEAR(entry.selected_on->estimate, 1.35, 0.003);
  EXPECT_NEAR(entry.mix->estimate, 1.30, 0.003);
}

TEST_F(RankRoundsTest, ShowsWhatEachRoundAcceptedAndWhy) {
  const Ranking ranking = MakeRanking(player_.Play());
  EXPECT_EQ(ranking.rounds[0].accepted, "tiles");
  EXPECT_EQ(ranking.rounds[1].accepted, "order");
  EXPECT_EQ(ranking.rounds[2].accepted, "");
  EXPECT_THAT(ranking.rounds[2].interventions, IsEmpty()) << "the final baseline alone";
  EXPECT_THAT(ranking.rounds[2].breakdown, SizeIs(2));
  ASSERT_THAT(ranking.rounds[1].interventions, SizeIs(2));
  EXPECT_EQ(ranking.rounds[1].interventions[1].id, "clash");
  EXPECT_THAT(ranking.rounds[1].interventions[1].reason, HasSubstr("dropped out"));
  EXPECT_NEAR(Find(ranking, "order").mix->estimate, 1.1, 0.003) << "against today's baseline";
  EXPECT_NEAR(ranking.rounds[1].interventions[0].mix->estimate, 1.04, 0.003);
}

TEST_F(RankRoundsTest, TheInteractionIsTheStackOverTheProductOfItsParts) {
  const Ranking ranking = MakeRanking(player_.Play());
  ASSERT_TRUE(ranking.stack.has_value());
  const StackSummary& stack = *ranking.stack;
  EXPECT_THAT(stack.ids, ElementsAre("tiles", "order"));
  EXPECT_NEAR(stack.mix->estimate, 1.35, 0.003);
  EXPECT_NEAR(stack.product->estimate, 1.3 * 1.1, 0.005);
  EXPECT_NEAR(stack.interaction->estimate, 1.35 / (1.3 * 1.1), 0.005);
  EXPECT_LT(*stack.interaction->low, stack.interaction->estimate);
  EXPECT_LT(*stack.interaction->high, 1);
  ASSERT_THAT(stack.left_out, SizeIs(2));
  EXPECT_NEAR(stack.left_out[0].mix->estimate, 1.25, 0.003);
  EXPECT_NEAR(stack.left_out[1].mix->estimate, 1.04, 0.003) << "its confirmation";
  EXPECT_THAT(stack.left_out[1].reason, HasSubstr("its confirmation in round 2"));
}

TEST_F(RankRoundsTest, TheSequenceIsWhatWasAcceptedWithItsMeasuredStack) {
  const Ranking ranking = MakeRanking(player_.Play());
  ASSERT_THAT(ranking.sequence, SizeIs(2));
  EXPECT_EQ(ranking.sequence[0].id, "tiles");
  EXPECT_NEAR(*ranking.sequence[0].measured_stack, 1.3, 0.003);
  EXPECT_EQ(ranking.sequence[1].id, "order");
  EXPECT_NEAR(ranking.sequence[1].expected_stack, 1.3 * 1.04, 0.005);
  EXPECT_NEAR(*ranking.sequence[1].measured_stack, 1.35, 0.003);
  EXPECT_THAT(ranking.answer, HasSubstr("with 1 more the stack is measured at 1.35"));
}

TEST_F(RankRoundsTest, EveryComparisonOfEveryRoundIsInOneFamily) {
  player_.Stage();
  const double one_round = *MakeRanking(player_.results()).interval_confidence;
  player_.Play();
  const JudgedRounds judged = JudgeRounds(player_.results(), {});
  EXPECT_EQ(judged.rounds[0].ranking.interval_confidence,
            judged.rounds[1].ranking.interval_confidence);
  EXPECT_GE(one_round, player_.results().campaign.measure.confidence);
}

TEST_F(RankRoundsTest, ACampaignThatIsStillBeingConfirmedKeepsTheComparison) {
  player_.Stage();
  player_.Stage();
  for (TrialRecord& trial : player_.results().trials) {
    if (trial.spec.role == TrialRole::kConfirm) {
      trial.state = TrialState::kRunning;
    }
  }
  player_.results().state = CampaignState::kRunning;
  const Ranking ranking = MakeRanking(player_.results());
  EXPECT_NEAR(Find(ranking, "tiles").mix->estimate, 1.35, 0.003);
  EXPECT_THAT(ranking.rounds_note, HasSubstr("round 1 of 2 is under way"));
  EXPECT_FALSE(ranking.stack.has_value());
}

}  // namespace
}  // namespace lastflop
