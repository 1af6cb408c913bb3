#include "planner/next_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "planner/judge_rounds.h"
#include "planner/rounds.h"
#include "tests/planner/rounds_player.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The same speedup at both points, whatever it comes upon.
RoundsPlayer::Speedup Always(std::map<std::string, double> speedups) {
  return [speedups = std::move(speedups)](const TrialSpec& spec) {
    const auto found = speedups.find(spec.intervention_id);
    return found == speedups.end() ? 1.0 : found->second;
  };
}

Intervention Tiles(const std::string& id = "tiles") { return Patch(id, {{"moe.group_m", "2"}}); }
Intervention Order(const std::string& id = "order") {
  return Patch(id, {{"moe.tile_order", "column_major"}});
}

std::vector<std::string> AcceptedIds(const CampaignResults& results) {
  std::vector<std::string> ids;
  for (const AcceptedIntervention& one : AcceptedIn(results)) {
    ids.push_back(one.id);
  }
  return ids;
}

TEST(DecideNextRoundTest, OneRoundEndsWithoutAnotherMeasurement) {
  RoundsPlayer player({Tiles()}, Always({{"tiles", 1.3}}));
  player.results().campaign.budget.rounds = 1;
  ASSERT_TRUE(player.Stage());
  EXPECT_FALSE(player.Stage());
  EXPECT_THAT(player.messages(), ElementsAre(""));
}

TEST(DecideNextRoundTest, MeasuresTheBestAgainBeforeItIsAccepted) {
  RoundsPlayer player({Order(), Tiles()}, Always({{"tiles", 1.3}, {"order", 1.1}}));
  player.Stage();
  player.Stage();
  const auto confirmations = player.Trials(1, TrialRole::kConfirm, "tiles");
  ASSERT_THAT(confirmations, SizeIs(2));
  EXPECT_EQ(confirmations[0]->spec.trial_id, "t0007") << "a new trial, and so fresh seeds";
  EXPECT_EQ(confirmations[0]->spec.variant.moe.group_m, 2);
  EXPECT_THAT(AcceptedIn(player.results()), IsEmpty());
  EXPECT_THAT(player.messages().back(), HasSubstr("tiles is the best"));
}

TEST(DecideNextRoundTest, ComparesTheOthersUponWhatItAccepted) {
  RoundsPlayer player({Order(), Tiles()}, Always({{"tiles", 1.3}, {"order", 1.1}}));
  player.Stage();
  player.Stage();
  player.Stage();
  EXPECT_THAT(AcceptedIds(player.results()), ElementsAre("tiles"));
  const auto baselines = player.Trials(2, TrialRole::kCompare, kBaselineId);
  ASSERT_THAT(baselines, SizeIs(2));
  EXPECT_EQ(baselines[1]->spec.variant.moe.group_m, 2);
  const auto order = player.Trials(2, TrialRole::kCompare, "order");
  ASSERT_THAT(order, SizeIs(2));
  EXPECT_EQ(order[0]->spec.baseline.moe.group_m, 2);
  EXPECT_EQ(order[0]->spec.variant.moe.group_m, 2);
  EXPECT_EQ(order[0]->spec.variant.moe.tile_order, TileOrder::kColumnMajor);
  EXPECT_THAT(player.Trials(2, TrialRole::kCompare, "tiles"), IsEmpty());
}

TEST(DecideNextRoundTest, EndsWithTheStackAndWithItsPartsLeftOut) {
  RoundsPlayer player({Order(), Tiles()}, Always({{"tiles", 1.3}, {"order", 1.1}, {"stack", 1.4}}));
  const CampaignResults& results = player.Play();
  EXPECT_THAT(AcceptedIds(results), ElementsAre("tiles", "order"));
  const auto stack = player.Trials(3, TrialRole::kStack, kStackId);
  ASSERT_THAT(stack, SizeIs(2));
  EXPECT_EQ(stack[0]->spec.baseline, results.campaign.baseline);
  EXPECT_EQ(stack[0]->spec.variant.moe.group_m, 2);
  EXPECT_EQ(stack[0]->spec.variant.moe.tile_order, TileOrder::kColumnMajor);
  const auto without = player.Trials(3, TrialRole::kLeaveOneOut, "tiles");
  ASSERT_THAT(without, SizeIs(2));
  EXPECT_EQ(without[0]->spec.baseline.moe.group_m, 0);
  EXPECT_EQ(without[0]->spec.baseline.moe.tile_order, TileOrder::kColumnMajor);
  // The last one's confirmation is that comparison already.
  EXPECT_THAT(player.Trials(3, TrialRole::kLeaveOneOut, "order"), IsEmpty());
  EXPECT_THAT(player.Trials(3, TrialRole::kCompare, kBaselineId), SizeIs(2));
  EXPECT_THAT(player.messages().back(), HasSubstr("accepted: tiles, order"));
}

TEST(DecideNextRoundTest, AWinnerByLuckIsNotAcceptedAndTheNextBestTakesItsTurn) {
  RoundsPlayer player({Order(), Tiles()}, [](const TrialSpec& spec) {
    const bool is_lucky = spec.intervention_id == "tiles" && spec.role == TrialRole::kCompare;
    return is_lucky ? 1.5 : (spec.intervention_id == "order" ? 1.1 : 1.0);
  });
  player.Play();
  EXPECT_THAT(player.Trials(1, TrialRole::kConfirm, "tiles"), SizeIs(2));
  EXPECT_THAT(player.Trials(1, TrialRole::kConfirm, "order"), SizeIs(2));
  EXPECT_EQ(AcceptedIds(player.results()).front(), "order");
}

TEST(DecideNextRoundTest, SaysThatARoundAcceptsNothing) {
  RoundsPlayer player({Tiles()}, Always({{"tiles", 0.9}}));
  player.Stage();
  EXPECT_FALSE(player.Stage());
  EXPECT_THAT(player.messages().back(), HasSubstr("round 1 of 2 accepts nothing: nothing is proven "
                                                  "faster and worth its effort"));
}

TEST(DecideNextRoundTest, LossyOnesAndWhatTheBudgetDoesNotHoldAreNotAccepted) {
  Intervention lossy = Tiles("lossy");
  lossy.quality = Quality::kLossy;
  Intervention dear = Patch("dear", {{"moe.cache_hint", "evict_first"}});
  dear.effort.likely_hours = 100;
  RoundsPlayer player({lossy, dear, Order()},
                      Always({{"lossy", 2}, {"dear", 1.5}, {"order", 1.1}}));
  player.results().campaign.budget.effort_hours = 40;
  player.Play();
  EXPECT_THAT(AcceptedIds(player.results()), ElementsAre("order"));
  EXPECT_THAT(player.messages().back(), HasSubstr("budget.effort does not hold dear"));
}

TEST(DecideNextRoundTest, WhatClashesWithAnAcceptedPatchDropsOutWithTheReason) {
  Intervention other = Patch("other", {{"moe.group_m", "4"}});
  Intervention apart = Order("apart");
  apart.excludes = {"tiles"};
  Intervention same = Patch("same", {{"moe.group_m", "2"}});
  RoundsPlayer player({Tiles(), other, apart, same},
                      Always({{"tiles", 1.3}, {"other", 1.2}, {"apart", 1.2}, {"same", 1.1}}));
  player.Play();
  const auto reason = [&player](const std::string& id) {
    const TrialRecord& trial = *player.Trials(2, TrialRole::kCompare, id).at(0);
    EXPECT_EQ(trial.spec.settled, Standing::kNotRun);
    return trial.reason;
  };
  EXPECT_EQ(reason("other"),
            "dropped out: it sets moe.group_m=4, and tiles, accepted in round 1, sets it to 2");
  EXPECT_EQ(reason("apart"),
            "dropped out: apart and tiles, which is in the baseline, exclude each other");
  EXPECT_EQ(reason("same"), "dropped out: it changes nothing in the baseline any more");
}

TEST(DecideNextRoundTest, WhatIsNeededComesAlongAndCannotBeLeftOut) {
  Intervention top = Order("top");
  top.needs = {"ground"};
  RoundsPlayer player({Tiles("ground"), top, Patch("last", {{"moe.cache_hint", "evict_first"}})},
                      Always({{"ground", 1.05}, {"top", 1.4}, {"last", 1.1}}));
  player.Play();
  const std::vector<AcceptedIntervention> accepted = AcceptedIn(player.results());
  ASSERT_THAT(accepted, SizeIs(2));
  EXPECT_EQ(accepted[0].id, "top");
  EXPECT_THAT(accepted[0].together, ElementsAre("ground"));
  EXPECT_THAT(player.Trials(2, TrialRole::kCompare, "ground"), IsEmpty());
  const auto without = player.Trials(3, TrialRole::kLeaveOneOut, "top");
  ASSERT_THAT(without, SizeIs(2));
  EXPECT_EQ(without[0]->spec.baseline.moe.group_m, 0) << "ground leaves with top";
}

TEST(DecideNextRoundTest, PerBatchIsInTheNextBaselineOnlyWhereItIsFaster) {
  Intervention tiles = Tiles();
  tiles.switchable = Switchable::kPerBatch;
  RoundsPlayer player({tiles, Order()}, [](const TrialSpec& spec) {
    if (spec.intervention_id == "tiles") return spec.point_index == 0 ? 1.6 : 0.8;
    return 1.05;
  });
  player.Play();
  const auto baselines = player.Trials(2, TrialRole::kCompare, kBaselineId);
  ASSERT_THAT(baselines, SizeIs(2));
  EXPECT_EQ(baselines[0]->spec.variant.moe.group_m, 2);
  EXPECT_EQ(baselines[1]->spec.variant.moe.group_m, 0);
  // Half of the time went down to 1 / 1.6 of what it was.
  const RoundTime time = TimeOfRound(player.results(), 2);
  EXPECT_NEAR(time.remaining, 0.5 / 1.6 + 0.5, 1e-3);
  EXPECT_NEAR(time.time_shares[0], 0.5 / 1.6 / (0.5 / 1.6 + 0.5), 1e-3);
  EXPECT_NEAR(time.time_shares[0] + time.time_shares[1], 1, 1e-9);
}

TEST(DecideNextRoundTest, TheChoiceOfASweepStaysInTheStack) {
  Intervention sweep = Patch("sweep", {{"moe.tile_order", "column_major"}});
  sweep.try_values = {{"moe.group_m", {"2", "4"}}};
  RoundsPlayer player(
      {sweep, Patch("clash", {{"moe.group_m", "2"}}), Order("again")}, [](const TrialSpec& spec) {
        return spec.intervention_id != "sweep" ? 1.01 : spec.choice == "moe.group_m=4" ? 1.3 : 1.1;
      });
  player.Play();
  const auto confirmations = player.Trials(1, TrialRole::kConfirm, "sweep");
  ASSERT_THAT(confirmations, SizeIs(2));
  EXPECT_EQ(confirmations[0]->spec.choice, "moe.group_m=4");
  EXPECT_EQ(player.Trials(2, TrialRole::kCompare, kBaselineId).at(0)->spec.variant.moe.group_m, 4);
  EXPECT_THAT(player.Trials(2, TrialRole::kCompare, "clash").at(0)->reason,
              HasSubstr("sweep, accepted in round 1, sets it to 4"));
}

TEST(DecideNextRoundTest, WhatCrashedIsNotTriedAgainButWhatWasUnsupportedIs) {
  RoundsPlayer player(
      {Tiles(), Order("broken"), Patch("later", {{"moe.cache_hint", "evict_first"}})},
      [](const TrialSpec& spec) {
        if (spec.intervention_id == "later") return spec.round == 1 ? 0 : 1.1;
        return spec.intervention_id == "broken" ? -1 : 1.3;
      });
  player.Play();
  const TrialRecord& again = *player.Trials(2, TrialRole::kCompare, "broken").at(0);
  EXPECT_EQ(again.spec.settled, Standing::kFailed);
  EXPECT_EQ(again.reason, "as in round 1: signal 9");
  EXPECT_THAT(AcceptedIds(player.results()), ElementsAre("tiles", "later"));
}

TEST(DecideNextRoundTest, TheSameResultsGiveTheSameTrials) {
  RoundsPlayer player({Order(), Tiles()}, Always({{"tiles", 1.3}, {"order", 1.1}}));
  while (true) {
    const CampaignResults before = player.results();
    if (!before.trials.empty()) {
      const NextRound once = DecideNextRound(before);
      const NextRound again = DecideNextRound(before);
      ASSERT_EQ(once.trials.size(), again.trials.size());
      EXPECT_EQ(once.message, again.message);
    }
    if (!player.Stage()) {
      break;
    }
  }
  EXPECT_THAT(DecideNextRound(player.results()).trials, IsEmpty()) << "it stays over";
}

}  // namespace
}  // namespace lastflop
