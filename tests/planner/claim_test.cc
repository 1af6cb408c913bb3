#include "planner/claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "planner/rank.h"
#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* what;
  double low;
  double high;
  std::optional<double> ceiling;
  ClaimVerdict verdict;
};

TEST(JudgeClaimTest, UsesEachWordForWhatItMeans) {
  const Claim claim{.low = 1.2, .high = 1.5};
  const Case cases[] = {
      {"all above the least claimed", 1.25, 1.35, {}, ClaimVerdict::kConfirmed},
      {"may reach past the range", 1.40, 1.60, {}, ClaimVerdict::kConfirmed},
      {"all above the range", 1.51, 1.60, {}, ClaimVerdict::kExceeded},
      {"faster, but less", 1.05, 1.15, {}, ClaimVerdict::kPartial},
      {"not faster", 0.99, 1.02, {}, ClaimVerdict::kRefuted},
      {"slower", 0.80, 0.90, {}, ClaimVerdict::kRefuted},
      {"holds the least claimed", 1.10, 1.30, {}, ClaimVerdict::kUndecided},
      {"cannot be", 1.05, 1.08, 1.1, ClaimVerdict::kImpossible},
      {"the measurement contradicts the ceiling", 1.25, 1.35, 1.1, ClaimVerdict::kConfirmed}};
  for (const Case& one : cases) {
    ClaimEvidence evidence;
    evidence.estimate = (one.low + one.high) / 2;
    evidence.low = one.low;
    evidence.high = one.high;
    evidence.ceiling = one.ceiling;
    EXPECT_EQ(JudgeClaim(claim, evidence).verdict, one.verdict) << one.what;
  }
}

TEST(JudgeClaimTest, IsImpossibleBeforeAnyTrialRan) {
  ClaimEvidence evidence;
  evidence.ceiling = 1.053;
  evidence.ceiling_arithmetic = "1000 / (1000 - (100 - 50))";
  const ClaimJudgement judgement = JudgeClaim(Claim{.low = 1.2}, evidence);
  EXPECT_EQ(judgement.verdict, ClaimVerdict::kImpossible);
  EXPECT_THAT(judgement.reason, HasSubstr("1000 / (1000 - (100 - 50))"));
}

TEST(JudgeClaimTest, SaysOfAPredictedCeilingThatItIsOne) {
  ClaimEvidence evidence;
  evidence.ceiling = 1.1;
  evidence.is_ceiling_predicted = true;
  const ClaimJudgement judgement = JudgeClaim(Claim{.low = 1.2}, evidence);
  EXPECT_EQ(judgement.verdict, ClaimVerdict::kImpossible);
  EXPECT_EQ(judgement.reason.rfind("predicted: 1.2x", 0), 0u) << judgement.reason;
}

TEST(JudgeClaimTest, IsUndecidedWithoutAnIntervalAndNoneWithoutAClaim) {
  ClaimEvidence evidence;
  evidence.estimate = 1.3;
  EXPECT_EQ(JudgeClaim(Claim{.low = 1.2}, evidence).verdict, ClaimVerdict::kUndecided);
  EXPECT_EQ(JudgeClaim(std::nullopt, evidence).verdict, ClaimVerdict::kNone);
}

TEST(ClaimTest, IsHeldOnlyAgainstTheBatchesItSpeaksOf) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("expert-parallel", 0.8, 1.3);
  builder.last().claim = Claim{.low = 1.2, .high = 1.5, .batch_low = 64};
  RankedIntervention one = Find(MakeRanking(builder.results()), "expert-parallel");
  EXPECT_EQ(one.claim_verdict, ClaimVerdict::kConfirmed);

  builder.last().claim->batch_low = 128;
  one = Find(MakeRanking(builder.results()), "expert-parallel");
  EXPECT_EQ(one.claim_verdict, ClaimVerdict::kUndecided);
  EXPECT_THAT(one.claim_reason, HasSubstr("no point with a batch in the claimed range"));
}

TEST(ClaimTest, HoldsAClaimAboutTheMoeNeverAgainstTheStep) {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("moe-kernel", 1.3, 1.3);
  builder.last().claim = Claim{.low = 1.2, .high = 1.5, .of = "moe"};
  RankedIntervention one = Find(MakeRanking(builder.results()), "moe-kernel");
  EXPECT_EQ(one.claim_verdict, ClaimVerdict::kUndecided);
  EXPECT_THAT(one.claim_reason, HasSubstr("was not measured in both arms"));

  // With breakdowns of both arms in every launch the part itself is compared: twice as fast.
  for (AttemptRecord& attempt : builder.results().attempts) {
    const bool is_baseline = attempt.result.trial_id == "t0" || attempt.result.trial_id == "t1";
    attempt.result.breakdown = {
        {.category = OpCategory::kMoe, .op = "moe.gate_up", .us = is_baseline ? 600.0 : 300.0}};
    attempt.result.breakdown_step_us = 1000;
  }
  one = Find(MakeRanking(builder.results()), "moe-kernel");
  EXPECT_EQ(one.claim_verdict, ClaimVerdict::kExceeded) << one.claim_reason;
}

}  // namespace
}  // namespace lastflop
