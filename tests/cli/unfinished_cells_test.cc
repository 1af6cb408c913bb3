#include "cli/unfinished_cells.h"

#include <gtest/gtest.h>

#include "tests/planner/campaign_builder.h"

namespace lastflop {
namespace {

CampaignResults Whole() {
  CampaignBuilder builder;
  builder.Baseline(1000).Measured("one", 1.2, 1.3).Failed("bad", FailureKind::kCrashed, "signal 9");
  return builder.results();
}

int64_t Count(const CampaignResults& a, const CampaignResults& b) {
  return CountUnfinishedCells(
      CompareCampaigns({.results = a, .environment = {}}, {.results = b, .environment = {}}), b);
}

// As Whole(), with the trials of "one" ended early and unmeasured.
CampaignResults StoppedBeforeOne(TrialState state) {
  CampaignResults results = Whole();
  for (TrialRecord& trial : results.trials) {
    if (trial.spec.intervention_id != "one") {
      continue;
    }
    trial.state = state;
    std::erase_if(results.attempts, [&trial](const AttemptRecord& attempt) {
      return attempt.result.trial_id == trial.spec.trial_id;
    });
  }
  return results;
}

TEST(UnfinishedCellsTest, AreThoseThatAMeasuredAndBHasNotYet) {
  EXPECT_EQ(Count(Whole(), Whole()), 0);
  for (const TrialState state :
       {TrialState::kPending, TrialState::kRunning, TrialState::kCancelled, TrialState::kLostOut}) {
    EXPECT_EQ(Count(Whole(), StoppedBeforeOne(state)), 2) << ToWord(state);
    EXPECT_EQ(Count(StoppedBeforeOne(state), Whole()), 0) << "A has nothing to hold B against";
  }
}

TEST(UnfinishedCellsTest, AreNotThoseThatBTriedInVain) {
  EXPECT_EQ(Count(Whole(), StoppedBeforeOne(TrialState::kFailed)), 0);
}

}  // namespace
}  // namespace lastflop
