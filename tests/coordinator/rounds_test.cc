// Rounds: what the planner wants next is stored with the report that ended the last trial, and
// survives kill -9.

#include "planner/rounds.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/coordinator/engine_fixture.h"

namespace lastflop {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

constexpr int kLaunches = 3;

class RoundsTest : public EngineFixture {
 protected:
  RoundsTest() : campaign_(SomeCampaignOf(2, kLaunches)) {
    campaign_.budget.rounds = 2;
    campaign_.interventions[1].set = {{"moe.tile_order", "column_major"}};
  }

  // i0 takes 80 of 100 us, i1 takes 90, both together 75.
  static AttemptResult ReportOf(const LeaseMessage& lease) {
    const auto us = [](const Plan& plan) {
      const bool has_i0 = plan.moe.group_m == 1;
      const bool has_i1 = plan.moe.tile_order == TileOrder::kColumnMajor;
      return has_i0 && has_i1 ? 75 : (has_i0 ? 80 : (has_i1 ? 90 : 100));
    };
    AttemptResult result = SuccessOf(lease.attempt.attempt_id);
    for (PairSample& sample : result.samples) {
      sample.pair.baseline_us = us(lease.attempt.baseline);
      sample.pair.variant_us = us(lease.attempt.variant);
    }
    return result;
  }

  Campaign campaign_;
};

TEST_F(RoundsTest, RunsRoundsUntilTheStackIsMeasured) {
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0");
  std::map<std::string, std::set<uint64_t>> data_seeds;
  while (true) {
    Sweep();
    const std::vector<LeaseMessage> leases = TakeLeases(w0);
    if (leases.empty()) {
      break;
    }
    const CampaignResults now = Results(id);
    for (const TrialRecord& trial : now.trials) {
      if (trial.spec.trial_id == leases[0].attempt.trial_id) {
        data_seeds[absl::StrCat(trial.spec.round, ToWord(trial.spec.role))].insert(
            leases[0].launch.data_seed);
      }
    }
    Report(w0, ReportOf(leases[0]));
  }
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  EXPECT_THAT(results.reason, HasSubstr("accepted: i0, i1"));
  const std::vector<AcceptedIntervention> accepted = AcceptedIn(results);
  ASSERT_THAT(accepted, SizeIs(2));
  EXPECT_EQ(accepted[0].id, "i0");
  EXPECT_EQ(accepted[1].id, "i1");
  // 3 compared, 1 confirmed, 2 compared, 1 confirmed; the baseline, the stack and it without i0.
  EXPECT_THAT(results.trials, SizeIs(10));
  EXPECT_EQ(results.trials.back().spec.role, TrialRole::kLeaveOneOut);
  // What decided the selection is not what is reported.
  EXPECT_NE(data_seeds.at("1compare"), data_seeds.at("1confirm"));
  EXPECT_EQ(data_seeds.at("1confirm"), data_seeds.at("2compare"));
  EXPECT_NE(data_seeds.at("2compare"), data_seeds.at("2confirm"));
}

TEST_F(RoundsTest, AKillAfterEveryReportRepeatsNothing) {
  const std::string id = Submit(campaign_);
  int num_reports = 0;
  for (int life = 0; life < 100; ++life) {
    Restart();
    const SessionId w0 = Connect("w0");
    Sweep();
    const std::vector<LeaseMessage> leases = TakeLeases(w0);
    if (leases.empty()) {
      break;
    }
    EXPECT_TRUE(Report(w0, ReportOf(leases[0])).authoritative);
    ++num_reports;
  }
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kDone);
  std::set<std::string> ids;
  for (const TrialRecord& trial : results.trials) {
    EXPECT_TRUE(ids.insert(trial.spec.trial_id).second);
    EXPECT_EQ(trial.state, TrialState::kDone);
    EXPECT_EQ(trial.num_attempts, kLaunches) << trial.spec.trial_id;
  }
  EXPECT_THAT(results.trials, SizeIs(10));
  EXPECT_EQ(num_reports, 10 * kLaunches);
}

TEST_F(RoundsTest, TheNextTrialsAreStoredWithTheReportThatEndedTheLast) {
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0");
  for (int i = 0; i < 3 * kLaunches; ++i) {
    EXPECT_THAT(Results(id).trials, SizeIs(3));
    Report(w0, ReportOf(NextLease(w0)));
  }
  const CampaignResults results = Results(id);
  EXPECT_EQ(results.state, CampaignState::kRunning);
  ASSERT_THAT(results.trials, SizeIs(4));
  EXPECT_EQ(results.trials[3].spec.role, TrialRole::kConfirm);
  EXPECT_EQ(results.trials[3].spec.intervention_id, "i0");
}

TEST_F(RoundsTest, ACampaignThatAcceptsNothingEndsAndSaysSo) {
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0");
  for (int i = 0; i < 3 * kLaunches; ++i) {
    AttemptResult result = SuccessOf(NextLease(w0).attempt.attempt_id);
    for (PairSample& sample : result.samples) {
      sample.pair.variant_us = sample.pair.baseline_us;
    }
    Report(w0, result);
  }
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
  EXPECT_THAT(Results(id).reason, HasSubstr("round 1 of 2 accepts nothing"));
}

TEST_F(RoundsTest, ALaterBaselineThatFailsEndsTheRoundsAndKeepsTheResults) {
  campaign_.measure.max_attempts = 1;
  const std::string id = Submit(campaign_);
  const SessionId w0 = Connect("w0");
  for (int i = 0; i < 4 * kLaunches; ++i) {
    Report(w0, ReportOf(NextLease(w0)));
  }
  const LeaseMessage lease = NextLease(w0);
  EXPECT_EQ(lease.attempt.intervention_id, kBaselineId);
  EXPECT_EQ(lease.attempt.baseline.moe.group_m, 1);
  Report(w0, FailureOf(lease.attempt.attempt_id, FailureKind::kCrashed, "signal 9"));
  EXPECT_EQ(Results(id).state, CampaignState::kDone);
  EXPECT_THAT(Results(id).reason, HasSubstr("accepted: i0"));
}

}  // namespace
}  // namespace lastflop
