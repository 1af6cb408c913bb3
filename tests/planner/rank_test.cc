#include "planner/rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/quarantine_note.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Ids(const Ranking& ranking) {
  std::vector<std::string> ids;
  for (const RankedIntervention& one : ranking.interventions) {
    ids.push_back(one.id);
  }
  return ids;
}

TEST(MakeRankingTest, RanksByNetGainOverTheMix) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("small", 1.05, 1.05).Measured("large", 1.0, 1.3);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(Ids(ranking), ElementsAre("large", "small"));
  const RankedIntervention& large = Find(ranking, "large");
  EXPECT_EQ(large.place, 1);
  EXPECT_EQ(large.effect, Effect::kFaster);
  const double speedup = 1 / (0.25 / 1.0 + 0.75 / 1.3);
  EXPECT_NEAR(large.mix->estimate, speedup, 0.003);
  EXPECT_NEAR(large.gain->net_gpu_hours, 50000 * (1 - 1 / speedup) * 0.8 - 8 * 40, 100);
  EXPECT_LT(*large.gain->low, large.gain->net_gpu_hours);
  EXPECT_NEAR(*large.break_even_gpu_hours, 8 * 40 / ((1 - 1 / speedup) * 0.8), 20);
}

TEST(MakeRankingTest, GivesTokensPerSecondOfBothArms) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("faster", 1.25, 1.25);
  const Ranking ranking = MakeRanking(builder.results());
  const PointResult& point = Find(ranking, "faster").points[1];
  EXPECT_NEAR(*point.baseline_tokens_per_s, 64 / 4000e-6, 50);
  EXPECT_NEAR(*point.variant_tokens_per_s, 1.25 * 64 / 4000e-6, 60);
}

TEST(MakeRankingTest, CallsASmallDifferenceInLargeNoiseNoWin) {
  CampaignBuilder builder;
  builder.Baseline(1000, 0.03).Measured("noise", 1.005, 1.005, 0.03);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_NE(Find(ranking, "noise").effect, Effect::kFaster);
  EXPECT_NE(Find(ranking, "noise").effect, Effect::kSlower);
  EXPECT_THAT(ranking.answer, HasSubstr("Nothing measured beats the baseline beyond noise"));
  EXPECT_THAT(ranking.sequence, IsEmpty());
}

TEST(MakeRankingTest, SaysThatOnlyTheMixIsUndecidedWhereAPointIsFaster) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("traded", 1.2, 0.9);
  const Ranking ranking = MakeRanking(builder.results());
  ASSERT_EQ(Find(ranking, "traded").points[0].effect, Effect::kFaster);
  EXPECT_EQ(ranking.answer,
            "Nothing measured beats the baseline beyond noise in the mix (1 slower); 1 is faster "
            "at a point.");
}

TEST(MakeRankingTest, TellsWhatCannotHelpFromWhatNobodyTried) {
  CampaignBuilder builder;
  builder.Baseline(1000)
      .Failed("pinned", FailureKind::kUnsupported, "no persisting cache")
      .Failed("plugged", FailureKind::kUnsupported, "no such plugin");
  EXPECT_EQ(MakeRanking(builder.results()).answer,
            "Nothing was measured: of 2 interventions 2 unsupported.");
  for (TrialRecord& trial : builder.results().trials) {
    if (trial.spec.intervention_id != kBaselineId) {
      trial.spec.settled = Standing::kInfeasible;
    }
  }
  EXPECT_EQ(MakeRanking(builder.results()).answer,
            "Nothing here can help: of 2 interventions 2 infeasible.");
}

TEST(MakeRankingTest, DoesNotSayThatNothingWasMeasuredWhereAPointWas) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("half", 1.3, 1.3);
  builder.results().trials.back().spec.settled = Standing::kUnsupported;
  EXPECT_THAT(MakeRanking(builder.results()).answer,
              HasSubstr("No answer: none of 1 interventions has a result over the whole mix"));
}

TEST(MakeRankingTest, LetsNoiseOrderNothing) {
  CampaignBuilder builder;
  builder.Baseline(1000, 0.03).Measured("noisy-but-dear", 1.006, 1.006, 0.03);
  builder.last().effort.likely_hours = 80;
  builder.Measured("cheap", 1.0, 1.0, 0.03);
  // Neither is proven: both count as 1, and the one that costs less stands first.
  EXPECT_THAT(Ids(MakeRanking(builder.results())), ElementsAre("cheap", "noisy-but-dear"));
}

TEST(MakeRankingTest, KeepsPlacesContiguousAndPutsTheRestAtTheEndWithAReason) {
  CampaignBuilder builder;
  builder.Baseline(1000)
      .Failed("crashing", FailureKind::kCrashed, "signal 9")
      .Measured("slower", 0.8, 0.8)
      .Failed("pinned", FailureKind::kUnsupported, "no persisting cache")
      .Measured("not-a-number", 1.5, 1.5)
      .Measured("faster", 1.2, 1.2);
  CampaignResults& results = builder.results();
  for (AttemptRecord& attempt : results.attempts) {
    if (attempt.result.trial_id == "t8") {  // not-a-number at batch 1.
      attempt.result.samples[3].pair.variant_us = std::numeric_limits<double>::quiet_NaN();
    }
  }
  Intervention missing;
  missing.id = "missing";
  results.campaign.interventions.push_back(missing);
  const Ranking ranking = MakeRanking(results);
  EXPECT_THAT(Ids(ranking),
              ElementsAre("faster", "slower", "pinned", "not-a-number", "crashing", "missing"));
  EXPECT_EQ(ranking.interventions[0].place, 1);
  EXPECT_EQ(ranking.interventions[1].place, 2);
  for (size_t i = 2; i < 6; ++i) {
    EXPECT_FALSE(ranking.interventions[i].place.has_value()) << i;
    EXPECT_FALSE(ranking.interventions[i].mix.has_value()) << i;
    EXPECT_FALSE(ranking.interventions[i].reason.empty()) << i;
  }
  EXPECT_EQ(Find(ranking, "not-a-number").standing, Standing::kInvalid);
  EXPECT_EQ(Find(ranking, "crashing").standing, Standing::kFailed);
  EXPECT_EQ(Find(ranking, "pinned").standing, Standing::kUnsupported);
  EXPECT_EQ(Find(ranking, "missing").standing, Standing::kNotRun);
}

TEST(MakeRankingTest, CallsATimeOfZeroInvalidAndNotInfinitelyFast) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("zero", 1.2, 1.2);
  builder.results().attempts.back().result.samples[0].pair.variant_us = 0;
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_EQ(Find(ranking, "zero").points[1].standing, Standing::kInvalid);
  EXPECT_EQ(Find(ranking, "zero").standing, Standing::kInvalid);
  EXPECT_FALSE(Find(ranking, "zero").place.has_value());
}

TEST(MakeRankingTest, LeavesUnrankedWhatIsFasterThanTheDeclaredPeak) {
  CampaignBuilder builder;
  builder.Baseline(1000).Failed("absurd", FailureKind::kImpossible,
                                "3.1 us is under the 40.0 us that the declared peak allows");
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_EQ(Find(ranking, "absurd").standing, Standing::kInvalid);
  EXPECT_THAT(Find(ranking, "absurd").reason, HasSubstr("declared peak"));
}

TEST(MakeRankingTest, GivesNoSpeedupWithoutABaseline) {
  CampaignBuilder builder;
  builder.Failed("unused", FailureKind::kCrashed, "x");
  CampaignBuilder other;
  other.Baseline(1000).Measured("faster", 1.5, 1.5);
  for (TrialRecord& trial : other.results().trials) {
    if (trial.spec.intervention_id == kBaselineId) {
      trial.state = TrialState::kFailed;
      trial.reason = "signal 11, 3 attempts";
    }
  }
  const Ranking ranking = MakeRanking(other.results());
  EXPECT_FALSE(Find(ranking, "faster").mix.has_value());
  EXPECT_FALSE(Find(ranking, "faster").points[0].speedup.has_value());
  EXPECT_FALSE(Find(ranking, "faster").place.has_value());
  EXPECT_THAT(ranking.answer, HasSubstr("No answer: the baseline has no result"));
}

TEST(MakeRankingTest, NamesThePointWithoutABaselineInTheAnswer) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("faster", 1.5, 1.5);
  for (TrialRecord& trial : builder.results().trials) {
    if (trial.spec.intervention_id == kBaselineId && trial.spec.point_index == 1) {
      trial.state = TrialState::kFailed;
      trial.reason = "does not fit";
    }
  }
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(ranking.answer, HasSubstr("No answer over the whole mix: the baseline has no result "
                                        "at decode b64"));
  EXPECT_THAT(ranking.answer, HasSubstr("does not fit"));
  EXPECT_TRUE(Find(ranking, "faster").points[0].speedup.has_value());
}

TEST(MakeRankingTest, MakesTheTotalNotAvailableWhereAPointHasNoResultAndSaysOverWhichShare) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("half", 1.3, 1.3);
  builder.results().trials.back().state = TrialState::kCancelled;
  builder.results().trials.back().reason = "budget.wall is over";
  const RankedIntervention half = Find(MakeRanking(builder.results()), "half");
  EXPECT_TRUE(half.points[0].speedup.has_value());
  EXPECT_FALSE(half.mix.has_value());
  EXPECT_EQ(half.standing, Standing::kNotRun);
  EXPECT_THAT(half.reason, HasSubstr("75% of the time"));
  EXPECT_THAT(half.reason, HasSubstr("budget.wall is over"));
}

TEST(MakeRankingTest, SwitchesAPerBatchInterventionOnOnlyWhereItIsProvenFaster) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("switched", 1.4, 0.7);
  builder.last().switchable = Switchable::kPerBatch;
  const RankedIntervention switched = Find(MakeRanking(builder.results()), "switched");
  EXPECT_TRUE(switched.points[0].enabled);
  EXPECT_FALSE(switched.points[1].enabled);
  EXPECT_NEAR(switched.mix->estimate, 1 / (0.25 / 1.4 + 0.75), 0.003);
  EXPECT_EQ(switched.effect, Effect::kFaster);
  EXPECT_THAT(switched.reason, HasSubstr("on at decode b1"));
}

TEST(MakeRankingTest, RanksLossyOnesApartUnlessTheBudgetAdmitsTheirError) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("exact", 1.1, 1.1).Measured("lossy", 1.6, 1.6);
  builder.last().quality = Quality::kLossy;
  for (AttemptRecord& attempt : builder.results().attempts) {
    attempt.result.check_before.error_to_baseline = 0.04;
  }
  Ranking ranking = MakeRanking(builder.results());
  EXPECT_THAT(Ids(ranking), ElementsAre("exact", "lossy"));
  EXPECT_FALSE(Find(ranking, "lossy").place.has_value());
  EXPECT_TRUE(Find(ranking, "lossy").mix.has_value());
  EXPECT_DOUBLE_EQ(*Find(ranking, "lossy").error, 0.04);
  EXPECT_DOUBLE_EQ(*Find(ranking, "exact").error, 0.04) << "shown, whatever it ranks among";
  EXPECT_TRUE(Find(ranking, "exact").place.has_value());

  builder.results().campaign.budget.max_error = 0.05;
  ranking = MakeRanking(builder.results());
  EXPECT_EQ(Find(ranking, "lossy").place, 1);
}

TEST(MakeRankingTest, OrdersByImpactAndSaysSoWhenNoGpuHoursAreGiven) {
  CampaignBuilder builder;
  builder.results().campaign.economics.gpu_hours.reset();
  builder.Baseline(1000).Measured("dear", 1.3, 1.3);
  builder.last().effort.likely_hours = 400;
  builder.Measured("cheap", 1.1, 1.1);
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_EQ(ranking.order, RankingOrder::kImpact);
  EXPECT_THAT(ranking.order_note, HasSubstr("economics.gpu_hours is not given"));
  EXPECT_THAT(Ids(ranking), ElementsAre("dear", "cheap"));
  EXPECT_FALSE(Find(ranking, "dear").gain.has_value());
  EXPECT_THAT(Ids(MakeRanking(builder.results(), {.order = RankingOrder::kPerHour})),
              ElementsAre("cheap", "dear"));
}

TEST(MakeRankingTest, BreaksTiesByEffortThenTierThenId) {
  CampaignBuilder builder;
  builder.results().campaign.economics.engineer_hour_in_gpu_hours = 0;
  builder.Baseline(1000, 0.03);
  builder.Measured("b", 1, 1, 0.03).last().tier = 2;
  builder.Measured("c", 1, 1, 0.03).last().tier = 1;
  builder.Measured("a", 1, 1, 0.03).last().tier = 2;
  builder.Measured("d", 1, 1, 0.03).last().effort.likely_hours = 4;
  EXPECT_THAT(Ids(MakeRanking(builder.results())), ElementsAre("d", "c", "a", "b"));
}

TEST(MakeRankingTest, ASwitchThatIsProvenNowhereHasNoIntervalOfCertainty) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("maybe", 1.02, 1.02, /*noise=*/0.2);
  builder.last().switchable = Switchable::kPerBatch;
  const Ranking ranking = MakeRanking(builder.results());
  const RankedIntervention& maybe = Find(ranking, "maybe");
  ASSERT_EQ(maybe.effect, Effect::kUndecided);
  EXPECT_EQ(maybe.mix->estimate, 1);
  EXPECT_FALSE(maybe.mix->low.has_value());
  EXPECT_EQ(maybe.mix->num_launches, 3);
  EXPECT_FALSE(maybe.gain->low.has_value());
}

TEST(MakeRankingTest, CallsTheSamePlanUnderTwoNamesNeitherFasterNorSlower) {
  CampaignBuilder builder;
  builder.Baseline(1000, 0.01).Measured("one-name", 1, 1, 0.01).Measured("other-name", 1, 1, 0.01);
  for (const RankedIntervention& one : MakeRanking(builder.results()).interventions) {
    EXPECT_TRUE(one.effect == Effect::kSame || one.effect == Effect::kUndecided) << one.id;
  }
}

TEST(MakeRankingTest, CallsTheSamePlanTheSameInBothOrdersWhileTheMachineDrifts) {
  // Both arms of a pair slow down together by 5% from the first launch to the last; the names are
  // measured in one order and in the other.
  for (const bool is_reversed : {false, true}) {
    CampaignBuilder builder;
    builder.Baseline(1000, 0.01)
        .Measured(is_reversed ? "other-name" : "one-name", 1, 1, 0.01)
        .Measured(is_reversed ? "one-name" : "other-name", 1, 1, 0.01);
    auto& attempts = builder.results().attempts;
    double slower = 1;
    for (AttemptRecord& attempt : attempts) {
      for (PairSample& sample : attempt.result.samples) {
        sample.pair.baseline_us *= slower;
        sample.pair.variant_us *= slower;
        slower += 0.05 / static_cast<double>(attempts.size() * attempt.result.samples.size());
      }
    }
    const Ranking ranking = MakeRanking(builder.results());
    ASSERT_EQ(ranking.interventions.size(), 2u);
    for (const RankedIntervention& one : ranking.interventions) {
      EXPECT_TRUE(one.effect == Effect::kSame || one.effect == Effect::kUndecided)
          << one.id << (is_reversed ? " reversed" : "");
    }
    EXPECT_GT(*ranking.baseline[1].drift, 0) << "drift is shown";
  }
}

TEST(MakeRankingTest, NamesTheDeclaredMachineAndWhatWasSetOnTheCommandLine) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  builder.results().machine.name = "detected";
  EXPECT_EQ(MakeRanking(builder.results()).environment["machine"], "detected");
  builder.results().campaign.machine_auto = false;
  builder.results().campaign.machine.name = "h200-x8";
  builder.results().campaign.overrides = {"budget.wall=5m", "machine=h200-x8"};
  const Ranking ranking = MakeRanking(builder.results());
  EXPECT_EQ(ranking.environment.at("machine"), "h200-x8");
  EXPECT_THAT(ranking.environment.at("set"), HasSubstr("budget.wall=5m"));
}

TEST(MakeRankingTest, NeedsTheLeastPairsToConvergeAsTrialsDo) {
  CampaignBuilder builder;  // 36 pairs a trial.
  builder.Baseline(1000).Measured("one", 1.2, 1.2, 0);
  builder.results().campaign.measure.min_pairs = 36;
  EXPECT_TRUE(Find(MakeRanking(builder.results()), "one").points[0].converged);
  builder.results().campaign.measure.min_pairs = 37;
  const PointResult few = Find(MakeRanking(builder.results()), "one").points[0];
  EXPECT_FALSE(few.converged);
  EXPECT_THAT(few.reason, HasSubstr("not converged: 36 pairs of at least 37"));
}

TEST(MakeRankingTest, GivesTheThrottledShareOfAllPairsWhetherDroppedOrNot) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("one", 1.2, 1.2);
  const auto throttle = [&builder](size_t every) {
    for (AttemptRecord& attempt : builder.results().attempts) {
      for (size_t i = 0; i < attempt.result.samples.size(); ++i) {
        attempt.result.samples[i].pair.throttled = i % every == 0;
      }
    }
    return *Find(MakeRanking(builder.results()), "one").points[0].throttled_share;
  };
  EXPECT_NEAR(throttle(12), 1.0 / 12, 1e-9) << "dropped";
  EXPECT_NEAR(throttle(2), 0.5, 1e-9) << "too many to drop";
}

TEST(MakeRankingTest, CallsATrialPowerLimitedWhoseArmsThrottleDifferently) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("one", 1.2, 1.2);
  const auto throttle = [&builder](bool is_baseline_too) {
    for (AttemptRecord& attempt : builder.results().attempts) {
      for (PairSample& sample : attempt.result.samples) {
        sample.pair.throttled = sample.pair.variant_throttled = true;
        sample.pair.baseline_throttled = is_baseline_too;
      }
    }
    return Find(MakeRanking(builder.results()), "one").points[0];
  };
  const PointResult limited = throttle(false);
  EXPECT_TRUE(limited.is_power_limited);
  EXPECT_THAT(limited.reason, HasSubstr("power-limited: the baseline throttles in 0% of its steps, "
                                        "this in 100%"));
  const PointResult both = throttle(true);
  EXPECT_FALSE(both.is_power_limited);
  EXPECT_EQ(both.baseline_throttled_share, 1);
}

TEST(MakeRankingTest, SaysHowExpertsWereChosenAndWithWhichSeed) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  Campaign& campaign = builder.results().campaign;
  campaign.points[0].routing = {.distribution = Distribution::kZipf, .exponent = 1.25, .seed = 41};
  campaign.points[1].routing = {.distribution = Distribution::kBalanced, .seed = 42};
  const std::string routing = MakeRanking(builder.results()).environment["routing"];
  EXPECT_THAT(routing, HasSubstr("zipf 1.25 seed 41"));
  EXPECT_THAT(routing, HasSubstr("balanced seed 42"));
}

TEST(MakeRankingTest, GivesOnePairNoIntervalAndNoVerdict) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("once", 1.5, 1.5);
  CampaignResults& results = builder.results();
  results.campaign.points.pop_back();
  std::erase_if(results.trials, [](const TrialRecord& t) { return t.spec.point_index == 1; });
  std::erase_if(results.attempts, [](const AttemptRecord& a) {
    return a.result.trial_id != "t0" && (a.result.trial_id != "t2" || a.result.launch > 0);
  });
  results.attempts.back().result.samples.resize(1);
  const RankedIntervention once = Find(MakeRanking(results), "once");
  ASSERT_TRUE(once.mix.has_value());
  EXPECT_FALSE(once.mix->low.has_value());
  EXPECT_EQ(once.effect, Effect::kUndecided);
  EXPECT_FALSE(once.points[0].noise.has_value());
}

TEST(BestSoFarTest, NamesTheLargestProvenSpeedupAndItsPoint) {
  CampaignBuilder builder;
  builder.Baseline(1000);
  EXPECT_EQ(BestSoFar(builder.results()), "");
  builder.Measured("fused-moe", 1.21, 1.05, 0.001).Measured("slower", 0.5, 0.5, 0.001);
  builder.Measured("noisy", 1.5, 1.5, 0.9);
  EXPECT_EQ(BestSoFar(builder.results()), "fused-moe 1.21x at decode b1 c4096");
}

TEST(BestSoFarTest, NamesNothingFromOneLaunch) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("fused-moe", 2.9, 1, 0.001);
  std::erase_if(builder.results().attempts,
                [](const AttemptRecord& attempt) { return attempt.result.launch > 0; });
  EXPECT_EQ(BestSoFar(builder.results()), "");
}

}  // namespace
}  // namespace lastflop
