#include <gtest/gtest.h>

#include "proto/codec.h"

namespace lastflop {
namespace {

CampaignResults SomeResults() {
  CampaignResults results;
  results.campaign_id = "c1";
  results.state = CampaignState::kOutOfBudget;
  results.created_at_ms = 1000;
  results.ended_at_ms = 2000;
  results.reason = "budget.wall of 6m is used up";
  results.campaign.name = "name";
  results.campaign.points.push_back({.batch = 8, .context = 128, .time_share = 1});
  results.source_yaml = "name: name\n";
  results.source_name = "name.yaml";
  results.machine.name = "here";
  TrialRecord trial;
  trial.spec = {.trial_id = "t0001", .intervention_id = "x", .choice = "moe.group_m=4"};
  trial.spec.variant.moe.group_m = 4;
  trial.state = TrialState::kDone;
  trial.reason = "no";
  trial.failure = {.kind = FailureKind::kUnsupported, .message = "no", .rank = -1};
  trial.num_attempts = 3;
  trial.converged = true;
  results.trials.push_back(trial);
  trial.spec.trial_id = "t0002";
  trial.spec.settled = Standing::kInfeasible;
  trial.spec.settled_reason = "64 mod 3 = 1";
  trial.spec.round = 2;
  trial.spec.role = TrialRole::kConfirm;
  trial.failure.reset();
  results.trials.push_back(trial);
  AttemptRecord attempt;
  attempt.result.attempt_id = "a1";
  attempt.result.trial_id = "t0001";
  attempt.result.launch = 1;
  attempt.state = AttemptState::kDone;
  attempt.authoritative = true;
  attempt.worker_ids = {"w0", "w1"};
  attempt.has_report = true;
  attempt.leased_at_ms = 1;
  attempt.started_at_ms = 2;
  attempt.ended_at_ms = 3;
  for (int i = 0; i < 2 * kSamplesPerPiece + 1; ++i) {
    attempt.result.samples.push_back({.pair = {.launch = 1, .draw = i, .baseline_us = 1}});
  }
  results.attempts.push_back(attempt);
  attempt.result = {.attempt_id = "a2", .trial_id = "t0001", .launch = 2};
  attempt.state = AttemptState::kLost;
  attempt.authoritative = false;
  attempt.has_report = false;
  attempt.outcome = "worker w0 was silent for 15 s";
  results.attempts.push_back(attempt);
  return results;
}

TEST(FetchCodecTest, ACampaignInPiecesIsPutTogetherAgain) {
  const CampaignResults results = SomeResults();
  CampaignResults fetched;
  for (const v1::FetchPiece& piece : ToPieces(results)) {
    EXPECT_LT(piece.ByteSizeLong(), 4u << 20);
    const absl::Status status = AppendPiece(piece, fetched);
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(fetched.campaign_id, "c1");
  EXPECT_EQ(fetched.state, CampaignState::kOutOfBudget);
  EXPECT_EQ(fetched.created_at_ms, 1000);
  EXPECT_EQ(fetched.ended_at_ms, 2000);
  EXPECT_EQ(fetched.reason, results.reason);
  EXPECT_EQ(fetched.campaign.points.size(), 1u);
  EXPECT_EQ(fetched.source_yaml, results.source_yaml);
  EXPECT_EQ(fetched.source_name, results.source_name);
  EXPECT_EQ(fetched.machine.name, "here");
  ASSERT_EQ(fetched.trials.size(), 2u);
  EXPECT_EQ(fetched.trials[0].spec.variant.moe.group_m, 4);
  EXPECT_EQ(fetched.trials[0].spec.choice, "moe.group_m=4");
  EXPECT_EQ(fetched.trials[0].failure->kind, FailureKind::kUnsupported);
  EXPECT_EQ(fetched.trials[0].num_attempts, 3);
  EXPECT_TRUE(fetched.trials[0].converged);
  EXPECT_EQ(fetched.trials[1].spec.settled, Standing::kInfeasible);
  EXPECT_EQ(fetched.trials[1].spec.settled_reason, "64 mod 3 = 1");
  EXPECT_EQ(fetched.trials[1].spec.round, 2);
  EXPECT_EQ(fetched.trials[1].spec.role, TrialRole::kConfirm);
  ASSERT_EQ(fetched.attempts.size(), 2u);
  EXPECT_EQ(fetched.attempts[0].result.samples.size(), 2u * kSamplesPerPiece + 1);
  EXPECT_EQ(fetched.attempts[0].result.samples.back().pair.draw, 2 * kSamplesPerPiece);
  EXPECT_EQ(fetched.attempts[0].worker_ids, results.attempts[0].worker_ids);
  EXPECT_TRUE(fetched.attempts[0].authoritative);
  EXPECT_FALSE(fetched.attempts[1].has_report);
  EXPECT_EQ(fetched.attempts[1].result.launch, 2);
  EXPECT_EQ(fetched.attempts[1].outcome, results.attempts[1].outcome);
}

TEST(FetchCodecTest, RefusesAPieceBeforeTheHeader) {
  const std::vector<v1::FetchPiece> pieces = ToPieces(SomeResults());
  CampaignResults fetched;
  EXPECT_EQ(AppendPiece(pieces[1], fetched).code(), absl::StatusCode::kInvalidArgument);
}

TEST(FetchCodecTest, RefusesAKindOfPieceItDoesNotKnow) {
  CampaignResults fetched;
  ASSERT_TRUE(AppendPiece(ToPieces(SomeResults())[0], fetched).ok());
  EXPECT_EQ(AppendPiece(v1::FetchPiece(), fetched).code(), absl::StatusCode::kInvalidArgument);
}

TEST(FetchCodecTest, CountsTrialsByState) {
  const absl::StatusOr<CampaignSummary> summary = FromProto(ToProto(Summarize(SomeResults())));
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_trials, 2);
  EXPECT_EQ(summary->num_done, 2);
  EXPECT_EQ(summary->num_pending, 0);
}

}  // namespace
}  // namespace lastflop
