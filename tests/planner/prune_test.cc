#include "planner/prune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "common/expand_trials.h"
#include "planner/trial_order.h"
#include "step/make_step.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Qwen on two ranks with one decode point, as a campaign that has just been submitted.
class DecidePruningTest : public ::testing::Test {
 protected:
  DecidePruningTest() {
    Campaign& campaign = results_.campaign;
    campaign.model = QwenModel();
    campaign.layers_kept = 2;
    campaign.baseline.parallel.tensor = 2;
    campaign.baseline.collectives.all_reduce = AllReduceAlgorithm::kNccl;
    Point point;
    point.batch = 8;
    point.context = 512;
    point.time_share = 1;
    campaign.points = {point};
    results_.machine.backend = "cuda";
    results_.machine.peak_bandwidth_gb_per_s = 4000;
    results_.machine.link_gb_per_s = 400;
  }

  Intervention& Add(const std::string& id, const std::string& path, const std::string& value) {
    Intervention intervention;
    intervention.id = id;
    intervention.set = {{path, value}};
    results_.campaign.interventions.push_back(intervention);
    return results_.campaign.interventions.back();
  }

  void Expand() {
    const absl::StatusOr<std::vector<TrialSpec>> specs = ExpandTrials(results_.campaign);
    ASSERT_TRUE(specs.ok()) << specs.status();
    for (const TrialSpec& spec : *specs) {
      TrialRecord trial;
      trial.spec = spec;
      results_.trials.push_back(trial);
    }
  }

  // The baseline's first launch: a step of 10 ms of which `category` has `share`.
  void MeasureBaseline(OpCategory category, double share) {
    StepOptions options;
    options.layers_kept = 2;
    const Campaign& campaign = results_.campaign;
    const auto step = MakeStep(campaign.model, campaign.baseline, campaign.points[0], 0, options);
    ASSERT_TRUE(step.ok()) << step.status();
    std::map<std::string, OpCategory> names;
    int num_of_category = 0;
    for (const Op& op : step->ops) {
      if (names.emplace(op.name, op.category).second) {
        num_of_category += op.category == category ? 1 : 0;
      }
    }
    ASSERT_GT(num_of_category, 0);
    AttemptRecord attempt;
    attempt.result.trial_id = results_.trials[0].spec.trial_id;
    attempt.state = AttemptState::kDone;
    attempt.authoritative = true;
    attempt.result.breakdown_step_us = 10000;
    for (const auto& [name, of] : names) {
      const double us = of == category ? share * 10000 / num_of_category
                                       : (1 - share) * 10000 /
                                             (static_cast<double>(names.size()) - num_of_category);
      attempt.result.breakdown.push_back({.category = of, .op = name, .us = us, .count = 1});
    }
    results_.attempts.push_back(attempt);
  }

  double CeilingOf(const std::string& reason) {
    return std::stod(reason.substr(reason.find(" is ") + 4));
  }

  CampaignResults results_;
};

TEST_F(DecidePruningTest, WaitsForTheBaselinesBreakdownAndNoLonger) {
  Add("one-shot", "collectives.all_reduce", "one_shot");
  Expand();
  EXPECT_TRUE(AwaitsBaseline(results_));
  MeasureBaseline(OpCategory::kCollective, 0.08);
  EXPECT_FALSE(AwaitsBaseline(results_));
  results_.attempts.clear();
  results_.trials[0].state = TrialState::kFailed;
  EXPECT_FALSE(AwaitsBaseline(results_)) << "no breakdown will come";
  results_.trials[0].state = TrialState::kPending;
  results_.campaign.measure.prune = false;
  EXPECT_FALSE(AwaitsBaseline(results_));
}

// The operators' profiles: all-reduce has 51.5% or 8% of the step, and its work can give no more
// than all of that, less its own floor.
TEST_F(DecidePruningTest, BoundsAllReduceWorkByItsShareOfTheStep) {
  Add("one-shot", "collectives.all_reduce", "one_shot").claim = Claim{.low = 3, .source = "ad"};
  Expand();
  for (const auto& [share, most] : {std::pair(0.515, 2.062), std::pair(0.08, 1.0871)}) {
    results_.attempts.clear();
    MeasureBaseline(OpCategory::kCollective, share);
    results_.campaign.measure.min_effect = 0.99 * most - 1;
    EXPECT_THAT(DecidePruning(results_).trials, IsEmpty()) << share;
    results_.campaign.measure.min_effect = most - 1;
    const PruneDecision decision = DecidePruning(results_);
    ASSERT_THAT(decision.trials, SizeIs(1)) << share;
    EXPECT_LT(CeilingOf(decision.trials[0].reason), most);
    EXPECT_THAT(decision.trials[0].reason, HasSubstr("all_reduce"));
    ASSERT_THAT(decision.impossible, SizeIs(1)) << "3x is above both";
    EXPECT_EQ(decision.impossible[0].intervention_id, "one-shot");
  }
}

TEST_F(DecidePruningTest, SettlesNothingByABreakdownOfAnotherStep) {
  Add("one-shot", "collectives.all_reduce", "one_shot").claim = Claim{.low = 3, .source = "ad"};
  Expand();
  MeasureBaseline(OpCategory::kCollective, 0.001);
  AttemptResult& baseline = results_.attempts.back().result;
  baseline.samples.assign(2, {});
  for (const auto& [timed_us, is_pruned] : {std::pair(9000.0, true), {6400.0, false}}) {
    for (PairSample& sample : baseline.samples) {
      sample.pair.baseline_us = sample.pair.variant_us = timed_us;
    }
    const PruneDecision decision = DecidePruning(results_);
    EXPECT_EQ(!decision.trials.empty(), is_pruned) << timed_us;
    EXPECT_EQ(!decision.impossible.empty(), is_pruned) << timed_us;
  }
}

TEST_F(DecidePruningTest, KeepsWhatIsNeededWhatRanAndWhatHasNoCeiling) {
  Add("one-shot", "collectives.all_reduce", "one_shot");
  Add("dependent", "launch.dependent", "true");
  Expand();
  MeasureBaseline(OpCategory::kCollective, 0.001);
  ASSERT_THAT(DecidePruning(results_).trials, SizeIs(1)) << "dependent launches have no ceiling";
  EXPECT_EQ(DecidePruning(results_).trials[0].trial, 1u);
  results_.campaign.interventions[1].needs = {"one-shot"};
  EXPECT_THAT(DecidePruning(results_).trials, IsEmpty());
  results_.campaign.interventions[1].needs.clear();
  results_.trials[1].num_attempts = 1;
  EXPECT_THAT(DecidePruning(results_).trials, IsEmpty());
  results_.trials[1].num_attempts = 0;
  results_.campaign.measure.prune = false;
  EXPECT_THAT(DecidePruning(results_).trials, IsEmpty());
}

TEST_F(DecidePruningTest, PrunesOnlyPointsOfWhatIsSwitchedPerBatch) {
  Add("one-shot", "collectives.all_reduce", "one_shot").switchable = Switchable::kPerBatch;
  results_.campaign.points.push_back(results_.campaign.points[0]);
  results_.campaign.points[1].batch = 64;
  Expand();
  MeasureBaseline(OpCategory::kCollective, 0.001);
  AttemptRecord second = results_.attempts[0];
  second.result.trial_id = results_.trials[1].spec.trial_id;
  for (BreakdownEntry& entry : second.result.breakdown) {
    entry.us *= entry.category == OpCategory::kCollective ? 500 : 0.5;
  }
  results_.attempts.push_back(second);
  const PruneDecision decision = DecidePruning(results_);
  ASSERT_THAT(decision.trials, SizeIs(1));
  EXPECT_EQ(results_.trials[decision.trials[0].trial].spec.point_index, 0);
}

// H200: 45 MB at about 4.5 TB/s are 10 us a step, however many layers there are. RTX PRO 6000: 96
// MiB at 1.6 TB/s are about 64.
TEST_F(DecidePruningTest, CountsEachPinnedByteOnceAStep) {
  Add("pin", "moe.l2_pin.share", "1");
  Expand();
  MeasureBaseline(OpCategory::kMoe, 0.5);
  for (const auto& [l2_bytes, bandwidth, saved_us] :
       {std::tuple(int64_t{62914560}, 4560.0, 10.3),
        std::tuple(int64_t{134217728}, 1600.0, 62.9)}) {
    results_.machine.l2_bytes = l2_bytes;
    results_.machine.peak_bandwidth_gb_per_s = bandwidth;
    results_.campaign.measure.min_effect = 0.01;
    const PruneDecision decision = DecidePruning(results_);
    ASSERT_THAT(decision.trials, SizeIs(1));
    EXPECT_NEAR(CeilingOf(decision.trials[0].reason), 10000 / (10000 - saved_us), 1e-4);
  }
}

TEST(PriorSpeedupTest, ReadsPercentAndRatio) {
  EXPECT_DOUBLE_EQ(*PriorSpeedup("+2%"), 1.02);
  EXPECT_DOUBLE_EQ(*PriorSpeedup("-3%"), 0.97);
  EXPECT_DOUBLE_EQ(*PriorSpeedup("1.2x"), 1.2);
  EXPECT_FALSE(PriorSpeedup("a lot").has_value());
  EXPECT_FALSE(PriorSpeedup("0x").has_value());
}

TEST(ExpectedSpeedupTest, TakesAPriorBeforeAClaimAndNothingAboveTheCeiling) {
  Intervention one;
  Point point;
  point.batch = 8;
  EXPECT_DOUBLE_EQ(ExpectedSpeedup(one, point, std::nullopt, 0.01), 1.01);
  EXPECT_DOUBLE_EQ(ExpectedSpeedup(one, point, 2.0, 0.01), 2 / 1.5);
  one.claim = Claim{.low = 1.2, .high = 1.2 * 1.21};
  EXPECT_NEAR(ExpectedSpeedup(one, point, std::nullopt, 0.01), 1.2 * 1.1, 1e-12);
  EXPECT_DOUBLE_EQ(ExpectedSpeedup(one, point, 1.1, 0.01), 1.1);
  one.prior = Prior{.result = "+2%"};
  EXPECT_DOUBLE_EQ(ExpectedSpeedup(one, point, std::nullopt, 0.01), 1.02);
  one.prior.reset();
  one.claim->batch_low = 64;
  EXPECT_DOUBLE_EQ(ExpectedSpeedup(one, point, std::nullopt, 0.01), 1) << "claimed elsewhere";
}

TEST_F(DecidePruningTest, OrdersTrialsByValueASecondUnderAWallBudget) {
  Add("late", "moe.group_m", "2").tier = 2;
  Add("early", "moe.group_m", "4").tier = 1;
  Add("promising", "moe.group_m", "8").claim = Claim{.low = 1.5};
  Expand();
  EXPECT_THAT(OrderTrials(results_), ElementsAre(0, 1, 2, 3)) << "no wall, no reason to reorder";
  results_.campaign.budget.wall = std::chrono::milliseconds(60000);
  EXPECT_THAT(OrderTrials(results_), ElementsAre(0, 3, 2, 1));
}

}  // namespace
}  // namespace lastflop
