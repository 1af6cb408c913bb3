// What ceilings decide is decided once, stored with the report that allows it, and survives kill
// -9.

#include <gmock/gmock.h>

#include "step/make_step.h"
#include "tests/coordinator/engine_fixture.h"

namespace lastflop {
namespace {

using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::SizeIs;

class PruningTest : public EngineFixture {
 protected:
  PruningTest() : campaign_(SomeCampaignOf(1, /*launches=*/2)) {
    campaign_.measure.prune = true;
    campaign_.interventions[0].claim = Claim{.low = 1.2, .source = "ad"};
  }

  // Of the baseline, with `moe_us` of 10 ms in the ops that moe.group_m touches.
  AttemptResult BaselineReport(const std::string& attempt_id, double moe_us) {
    AttemptResult result = SuccessOf(attempt_id);
    const auto step = MakeStep(campaign_.model, campaign_.baseline, campaign_.points[0], 0, {});
    EXPECT_TRUE(step.ok()) << step.status();
    std::set<std::string> seen;
    for (const Op& op : step->ops) {
      if (seen.insert(op.name).second) {
        result.breakdown.push_back({.category = op.category,
                                    .op = op.name,
                                    .us = op.category == OpCategory::kMoe ? moe_us : 0,
                                    .count = 1});
      }
    }
    result.breakdown.push_back(
        {.category = OpCategory::kAttention, .op = "rest", .us = 10000, .count = 1});
    result.breakdown_step_us = 10000;
    for (PairSample& sample : result.samples) {
      sample.pair.baseline_us = 10000;
      sample.pair.variant_us = 9000;
    }
    return result;
  }

  Campaign campaign_;
};

TEST_F(PruningTest, APrunedTrialIsDoneWithItsArithmeticAndWithoutAnAttempt) {
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0");
  const LeaseMessage lease = NextLease(w0);
  EXPECT_EQ(lease.attempt.intervention_id, kBaselineId);
  EXPECT_TRUE(lease.attempt.breakdown);
  Report(w0, BaselineReport(lease.attempt.attempt_id, 2));
  const TrialRecord pruned = Results(id).trials[1];
  EXPECT_EQ(pruned.state, TrialState::kDone);
  EXPECT_EQ(pruned.spec.settled, Standing::kPruned);
  EXPECT_THAT(pruned.reason, HasSubstr("under the minimum effect of 1%"));
  EXPECT_EQ(pruned.num_attempts, 0);
  EXPECT_EQ(WorkOff(w0), 1) << "the baseline's other launch";
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
}

TEST_F(PruningTest, TheDecisionIsStoredWithTheReportThatAllowsIt) {
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0", 77);
  const std::string attempt_id = NextLease(w0).attempt.attempt_id;
  Restart();
  EXPECT_FALSE(Results(id).trials[1].spec.settled.has_value());
  const SessionId again = Connect("w0", 77, {attempt_id});
  Report(again, BaselineReport(attempt_id, 2));
  Restart();
  EXPECT_EQ(Results(id).trials[1].spec.settled, Standing::kPruned);
  ASSERT_TRUE(engine_->Cancel(id).ok());
  ASSERT_TRUE(engine_->Resume(id).ok());
  EXPECT_EQ(Results(id).trials[1].spec.settled, Standing::kPruned)
      << "resume brings back no finding";
  EXPECT_EQ(WorkOff(Connect("w1")), 1);
  EXPECT_EQ(Results(id).trials[1].num_attempts, 0);
}

TEST_F(PruningTest, MeasuresWhatMayHelpAfterTheBaselinesFirstLaunch) {
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0");
  const LeaseMessage lease = NextLease(w0);
  Sweep();
  EXPECT_THAT(TakeLeases(w0), SizeIs(0));
  Report(w0, BaselineReport(lease.attempt.attempt_id, 5000));
  EXPECT_EQ(WorkOff(w0), 3);
  EXPECT_THAT(Results(id).trials, Each(Field(&TrialRecord::state, TrialState::kDone)));
  EXPECT_EQ(Results(id).trials[1].num_attempts, 2);
}

TEST_F(PruningTest, RunsEverythingWhenToldNotToPrune) {
  campaign_.measure.prune = false;
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0");
  Report(w0, BaselineReport(NextLease(w0).attempt.attempt_id, 2));
  EXPECT_EQ(WorkOff(w0), 3);
  EXPECT_FALSE(Results(id).campaign.measure.prune) << "and that is stored";
}

}  // namespace
}  // namespace lastflop
