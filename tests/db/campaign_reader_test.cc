#include "db/campaign_reader.h"

#include <gtest/gtest.h>

#include "db/campaign_store.h"
#include "db/change_store.h"
#include "tests/db/some_campaign.h"

namespace lastflop {
namespace {

TEST(CampaignReaderTest, ReadsBackEverythingThatWasStored) {
  Database database = DatabaseWithCampaign(":memory:");
  ChangeStore store(database);
  Change lease{.campaign_id = "c1", .at_ms = 2000};
  lease.leased.push_back(SomeLease("a1", 1));
  lease.leased.push_back(SomeLease("a2", 2));
  ASSERT_TRUE(store.Apply(lease).ok());
  Change start{.campaign_id = "c1", .at_ms = 2500};
  start.attempts.push_back({.attempt_id = "a1", .state = AttemptState::kRunning});
  ASSERT_TRUE(store.Apply(start).ok());
  Change done{.campaign_id = "c1", .at_ms = 3000};
  done.attempts.push_back({.attempt_id = "a1",
                           .state = AttemptState::kFailed,
                           .authoritative = true,
                           .outcome = "signal 9"});
  AttemptResult report = SomeReport("a1");
  report.failure = {.kind = FailureKind::kCrashed, .message = "signal 9", .rank = 1};
  done.reports.push_back(report);
  TrialRecord trial = SomeCampaign("c1").trials[1];
  trial.state = TrialState::kFailed;
  trial.reason = "signal 9";
  trial.failure = report.failure;
  trial.converged = true;
  done.trials.push_back(trial);
  Machine machine;
  machine.name = "detected";
  done.campaign = CampaignUpdate{.state = CampaignState::kDone,
                                 .reason = "because",
                                 .machine = machine,
                                 .resumed_at_ms = 1000,
                                 .wall_from_ms = 1500,
                                 .ended_at_ms = 3000};
  ASSERT_TRUE(store.Apply(done).ok());

  const absl::StatusOr<CampaignResults> results = ReadCampaign(database, "c1");
  ASSERT_TRUE(results.ok()) << results.status();
  EXPECT_EQ(results->campaign.name, "name of c1");
  EXPECT_EQ(results->state, CampaignState::kDone);
  EXPECT_EQ(results->reason, "because");
  EXPECT_EQ(results->machine.name, "detected");
  EXPECT_EQ(results->created_at_ms, 1000);
  EXPECT_EQ(results->ended_at_ms, 3000);
  EXPECT_EQ(results->source_name, "x.yaml");
  ASSERT_EQ(results->trials.size(), 3u);
  EXPECT_EQ(results->trials[1].spec.variant.moe.group_m, 4);
  EXPECT_EQ(results->trials[1].state, TrialState::kFailed);
  EXPECT_EQ(results->trials[1].num_attempts, 2);
  EXPECT_EQ(results->trials[1].failure->rank, 1);
  EXPECT_TRUE(results->trials[1].converged);
  EXPECT_EQ(results->trials[2].spec.settled, Standing::kInfeasible);
  ASSERT_EQ(results->attempts.size(), 2u);
  const AttemptRecord& attempt = results->attempts[0];
  EXPECT_EQ(attempt.worker_ids, (std::vector<std::string>{"w0", "w1"}));
  EXPECT_EQ(attempt.leased_at_ms, 2000);
  EXPECT_EQ(attempt.started_at_ms, 2500);
  EXPECT_EQ(attempt.ended_at_ms, 3000);
  EXPECT_TRUE(attempt.has_report);
  EXPECT_EQ(attempt.result.failure->message, "signal 9");
  ASSERT_EQ(attempt.result.samples.size(), 3u);
  EXPECT_EQ(attempt.result.samples[2].pair.baseline_us, 12.5);
  EXPECT_TRUE(attempt.result.samples[2].pair.throttled);
  EXPECT_FALSE(attempt.result.samples[2].pair.baseline_throttled);
  EXPECT_TRUE(attempt.result.samples[2].pair.variant_throttled);
  EXPECT_TRUE(attempt.result.samples[1].variant_first);
  EXPECT_EQ(attempt.result.check_before.error_to_baseline, 0.3);
  EXPECT_EQ(attempt.result.check_after.detail, "layer 1");
  EXPECT_EQ(attempt.result.breakdown[0].op, "moe.gate_up");
  EXPECT_EQ(attempt.result.data_seed, report.data_seed);
  EXPECT_EQ(attempt.result.environment, report.environment);
  EXPECT_EQ(attempt.result.warnings, report.warnings);
  EXPECT_EQ(attempt.result.fidelity, Fidelity::kShard);
  EXPECT_FALSE(results->attempts[1].has_report);
  EXPECT_EQ(results->attempts[1].result.launch, 2);

  const absl::StatusOr<RunState> state = ReadRunState(database, "c1");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(state->has_machine);
  EXPECT_EQ(state->wall_from_ms, 1500);
  EXPECT_EQ(state->deadlines.size(), 1u);
  EXPECT_EQ(state->deadlines.at("a2"), std::chrono::milliseconds(60000));
}

TEST(CampaignReaderTest, FindsACampaignByIdPrefixOrName) {
  Database database = DatabaseWithCampaign(":memory:");
  EXPECT_EQ(*ResolveCampaign(database, ""), "c1");
  CampaignEvent event{.kind = "campaign"};
  ASSERT_TRUE(CampaignStore(database).Insert(SomeCampaign("c12"), "s2", event).ok());
  EXPECT_EQ(*ResolveCampaign(database, "c1"), "c1") << "an id is no prefix";
  EXPECT_EQ(*ResolveCampaign(database, "c12"), "c12");
  EXPECT_EQ(*ResolveCampaign(database, "name of c12"), "c12");
  EXPECT_EQ(ResolveCampaign(database, "c").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveCampaign(database, "x").status().code(), absl::StatusCode::kNotFound);
}

TEST(CampaignReaderTest, ListsCampaignsWithTheirCounts) {
  Database database = DatabaseWithCampaign(":memory:");
  const absl::StatusOr<std::vector<CampaignSummary>> campaigns = ListCampaigns(database);
  ASSERT_TRUE(campaigns.ok()) << campaigns.status();
  ASSERT_EQ(campaigns->size(), 1u);
  EXPECT_EQ((*campaigns)[0].num_trials, 3);
  EXPECT_EQ((*campaigns)[0].num_pending, 2);
  EXPECT_EQ((*campaigns)[0].num_done, 1);
}

TEST(CampaignReaderTest, ReadsAFileBesideItsWriter) {
  const TemporaryFile file("x.db");
  Database writer = DatabaseWithCampaign(file.path());
  ASSERT_TRUE(writer.ExecuteScript("BEGIN IMMEDIATE").ok());
  absl::StatusOr<Database> reader = OpenForReading(file.path());
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(ReadCampaign(*reader, "c1").ok());
}

TEST(CampaignReaderTest, SaysWhatIsNoDatabaseOfLastflop) {
  const TemporaryFile file("x.db");
  { Database::Open(file.path(), Database::Mode::kReadWrite).status().IgnoreError(); }
  EXPECT_EQ(OpenForReading(file.path()).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(OpenForReading(file.folder() + "/none.db").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace lastflop
