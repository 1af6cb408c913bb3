#include "planner/predict_measured.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/rank.h"
#include "tests/planner/campaign_builder.h"
#include "tests/planner/cost/test_machine.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// Eight H200s, and experts that are kept whole.
class PredictMeasuredTest : public testing::Test {
 protected:
  PredictMeasuredTest() {
    builder_.Baseline(9000).Measured("experts", 1.2, 1.3, 0);
    CampaignResults& results = builder_.results();
    results.campaign.model = KimiModel();
    results.machine = H200x8();
    results.campaign.baseline.parallel.tensor = 8;
    for (TrialRecord& trial : results.trials) {
      trial.spec.baseline = results.campaign.baseline;
      trial.spec.variant = results.campaign.baseline;
      if (trial.spec.intervention_id == "experts") {
        trial.spec.variant.parallel.expert = 8;
      }
    }
  }

  CampaignBuilder builder_;
};

TEST_F(PredictMeasuredTest, StandsBesideTheMeasurementWithItsError) {
  const Ranking ranking = MakeRanking(builder_.results());
  const RankedIntervention& experts = Find(ranking, "experts");
  ASSERT_TRUE(experts.predicted_speedup.has_value());
  EXPECT_NEAR(*experts.prediction_error, *experts.predicted_speedup / experts.mix->estimate - 1,
              1e-12);
  EXPECT_NEAR(experts.mix->estimate, 1 / (0.25 / 1.2 + 0.75 / 1.3), 1e-6) << "still measured";
  EXPECT_EQ(experts.standing, Standing::kMeasured);
  EXPECT_THAT(ranking.assumptions, Contains(HasSubstr("predicted speedups are the cost model's")));
}

TEST_F(PredictMeasuredTest, PredictsNothingOfWhatIsOnNowhere) {
  CampaignBuilder& builder = builder_;
  for (AttemptRecord& attempt : builder.results().attempts) {
    for (PairSample& sample : attempt.result.samples) {
      sample.pair.variant_us = 1.3 * sample.pair.baseline_us;
    }
  }
  builder.last().switchable = Switchable::kPerBatch;
  const RankedIntervention experts = Find(MakeRanking(builder.results()), "experts");
  EXPECT_FALSE(experts.points[0].enabled);
  EXPECT_FALSE(experts.predicted_speedup.has_value());
}

TEST_F(PredictMeasuredTest, PredictsNothingWithoutABandwidthAndNothingWarm) {
  builder_.results().campaign.measure.warm = true;
  EXPECT_FALSE(Find(MakeRanking(builder_.results()), "experts").predicted_speedup.has_value());
  builder_.results().campaign.measure.warm = false;
  builder_.results().machine = Machine();
  EXPECT_FALSE(Find(MakeRanking(builder_.results()), "experts").predicted_speedup.has_value());
}

TEST_F(PredictMeasuredTest, TakesPeaksThatNoDriverReportsFromTheDataSheet) {
  const Ranking declared = MakeRanking(builder_.results());
  Machine& machine = builder_.results().machine;
  machine.name = "detected";
  machine.peak_bandwidth_gb_per_s.reset();
  machine.peak_bf16_tflop_per_s.reset();
  machine.link_gb_per_s.reset();
  const Ranking ranking = MakeRanking(builder_.results());
  ASSERT_TRUE(Find(ranking, "experts").predicted_speedup.has_value());
  EXPECT_NEAR(*Find(ranking, "experts").predicted_speedup,
              *Find(declared, "experts").predicted_speedup, 1e-9);
  EXPECT_THAT(ranking.assumptions,
              Contains(HasSubstr("peaks of NVIDIA H200 from its data sheet: memory bandwidth")));
}

TEST_F(PredictMeasuredTest, WhatTheModelDoesNotSeeHasNoPrediction) {
  for (TrialRecord& trial : builder_.results().trials) {
    trial.spec.variant = trial.spec.baseline;
    if (trial.spec.intervention_id == "experts") {
      trial.spec.variant.process_env["NAME"] = "value";
    }
  }
  EXPECT_FALSE(Find(MakeRanking(builder_.results()), "experts").predicted_speedup.has_value());
}

}  // namespace
}  // namespace lastflop
