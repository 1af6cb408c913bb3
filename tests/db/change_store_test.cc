#include "db/change_store.h"

#include <gtest/gtest.h>

#include "db/campaign_reader.h"
#include "db/campaign_store.h"
#include "db/event_rows.h"
#include "tests/db/some_campaign.h"

namespace lastflop {
namespace {

class ChangeStoreTest : public testing::Test {
 protected:
  absl::Status Lease(const std::string& attempt_id, int launch) {
    Change change{.campaign_id = "c1", .at_ms = 2000};
    change.leased.push_back(SomeLease(attempt_id, launch));
    return store_.Apply(change);
  }

  absl::Status End(const std::string& attempt_id, AttemptState state, bool authoritative) {
    Change change{.campaign_id = "c1", .at_ms = 3000};
    change.attempts.push_back(
        {.attempt_id = attempt_id, .state = state, .authoritative = authoritative});
    return store_.Apply(change);
  }

  Database database_ = DatabaseWithCampaign(":memory:");
  ChangeStore store_{database_};
};

TEST_F(ChangeStoreTest, AnAttemptThatEndedIsNeverRewritten) {
  ASSERT_TRUE(Lease("a1", 1).ok());
  ASSERT_TRUE(End("a1", AttemptState::kDone, true).ok());
  EXPECT_EQ(End("a1", AttemptState::kLost, false).code(), absl::StatusCode::kFailedPrecondition);
  const absl::StatusOr<CampaignResults> results = ReadCampaign(database_, "c1");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->attempts[0].state, AttemptState::kDone);
  EXPECT_TRUE(results->attempts[0].authoritative);
}

TEST_F(ChangeStoreTest, TheDatabaseItselfRefusesASecondAcceptedAttempt) {
  ASSERT_TRUE(Lease("a1", 1).ok());
  ASSERT_TRUE(Lease("a2", 1).ok());
  ASSERT_TRUE(End("a1", AttemptState::kDone, true).ok());
  EXPECT_EQ(End("a2", AttemptState::kDone, true).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(End("a2", AttemptState::kLost, false).ok());
}

TEST_F(ChangeStoreTest, AChangeThatFailsHalfWayStoresNothing) {
  ASSERT_TRUE(Lease("a1", 1).ok());
  Change change{.campaign_id = "c1", .at_ms = 3000};
  change.attempts.push_back({.attempt_id = "a1", .state = AttemptState::kDone});
  change.reports.push_back(SomeReport("a1"));
  change.reports.push_back(SomeReport("no-such-attempt"));
  EXPECT_FALSE(store_.Apply(change).ok());
  const absl::StatusOr<CampaignResults> results = ReadCampaign(database_, "c1");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->attempts[0].state, AttemptState::kLeased);
  EXPECT_FALSE(results->attempts[0].has_report);
}

TEST_F(ChangeStoreTest, ATrialOfALaterRoundStandsBehindTheOthersWithItsRole) {
  Change change{.campaign_id = "c1", .at_ms = 3000};
  TrialRecord trial;
  trial.spec.trial_id = "t0003";
  trial.spec.intervention_id = "group";
  trial.spec.round = 2;
  trial.spec.role = TrialRole::kLeaveOneOut;
  trial.spec.baseline.moe.group_m = 4;
  change.new_trials = {trial};
  change.first_new_trial = 3;
  ASSERT_TRUE(store_.Apply(change).ok());
  const absl::StatusOr<CampaignResults> results = ReadCampaign(database_, "c1");
  ASSERT_TRUE(results.ok()) << results.status();
  ASSERT_EQ(results->trials.size(), 4);
  EXPECT_EQ(results->trials[0].spec.round, 1);
  EXPECT_EQ(results->trials[0].spec.role, TrialRole::kCompare);
  EXPECT_EQ(results->trials[3].spec.trial_id, "t0003");
  EXPECT_EQ(results->trials[3].spec.round, 2);
  EXPECT_EQ(results->trials[3].spec.role, TrialRole::kLeaveOneOut);
  EXPECT_EQ(results->trials[3].spec.baseline, trial.spec.baseline);
  EXPECT_FALSE(store_.Apply(change).ok()) << "the same trial twice";
}

TEST_F(ChangeStoreTest, AReportIsKeptOnce) {
  ASSERT_TRUE(Lease("a1", 1).ok());
  Change change{.campaign_id = "c1", .at_ms = 3000};
  change.reports.push_back(SomeReport("a1"));
  ASSERT_TRUE(store_.Apply(change).ok());
  EXPECT_EQ(store_.Apply(change).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ChangeStoreTest, EventsGetAscendingSequenceNumbers) {
  Change change{.campaign_id = "c1", .at_ms = 2000};
  change.events.push_back({.kind = "trial", .trial_id = "t0001", .state = "running"});
  change.events.push_back({.kind = "trial", .trial_id = "t0001", .state = "done"});
  ASSERT_TRUE(store_.Apply(change).ok());
  EXPECT_EQ(change.events[1].sequence, change.events[0].sequence + 1);
  const absl::StatusOr<std::vector<CampaignEvent>> events =
      ReadEvents(database_, "c1", change.events[0].sequence, 10);
  ASSERT_TRUE(events.ok()) << events.status();
  ASSERT_EQ(events->size(), 1u);
  EXPECT_EQ((*events)[0].state, "done");
  EXPECT_EQ((*events)[0].at_ms, 2000);
  EXPECT_EQ((*events)[0].summary.name, "name of c1");
}

TEST_F(ChangeStoreTest, AFullDiskLeavesNothingDone) {
  const TemporaryFile file("x.db");
  Database database = DatabaseWithCampaign(file.path());
  ChangeStore store(database);
  Change lease{.campaign_id = "c1", .at_ms = 2000};
  lease.leased.push_back(SomeLease("a1", 1));
  ASSERT_TRUE(store.Apply(lease).ok());
  ASSERT_TRUE(database.ExecuteScript("PRAGMA max_page_count = 1").ok());
  Change done{.campaign_id = "c1", .at_ms = 3000};
  done.attempts.push_back(
      {.attempt_id = "a1", .state = AttemptState::kDone, .authoritative = true});
  AttemptResult report = SomeReport("a1");
  report.samples.resize(10000, report.samples[0]);
  done.reports.push_back(report);
  EXPECT_EQ(store.Apply(done).code(), absl::StatusCode::kResourceExhausted);
  const absl::StatusOr<CampaignResults> results = ReadCampaign(database, "c1");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->attempts[0].state, AttemptState::kLeased);
}

TEST_F(ChangeStoreTest, ASubmissionIsStoredOnceAndFoundAgain) {
  CampaignStore campaigns(database_);
  CampaignEvent event{.kind = "campaign"};
  EXPECT_EQ(campaigns.Insert(SomeCampaign("c2"), "s1", event).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(**campaigns.FindSubmission("s1"), "c1");
  EXPECT_FALSE(campaigns.FindSubmission("s2")->has_value());
}

}  // namespace
}  // namespace lastflop
