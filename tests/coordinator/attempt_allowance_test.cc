#include "coordinator/attempt_allowance.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/coordinator/some_run.h"

namespace lastflop {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr milliseconds kAtMost = minutes(15);

TEST(AttemptAllowanceTest, ASmallModelHangsAfterMinutesAndPastItsWallAfterHalfOne) {
  const MeasureOptions measure;  // 1 s of the 3 s a launch.
  const AttemptNeeds needs{.weight_bytes = 1e6, .step_flop = 1e7, .on_cpu = true};
  EXPECT_LT(AttemptDeadline(measure, needs, kAtMost), minutes(6));
  EXPECT_GE(AttemptDeadline(measure, needs, kAtMost), minutes(5));
  EXPECT_LT(WallGrace(measure, needs, kAtMost), seconds(31));
}

TEST(AttemptAllowanceTest, ASlowLaunchIsGivenSeveralTimesWhatItTakes) {
  // 71 GB of weights take an H200 20 s; both arms have theirs.
  const AttemptNeeds on_gpu{.weight_bytes = 142e9, .step_flop = 1e12};
  EXPECT_GT(WallGrace({}, on_gpu, kAtMost), minutes(4));
  EXPECT_GT(AttemptDeadline({}, on_gpu, kAtMost), minutes(9));
  const AttemptNeeds on_cpu{.weight_bytes = 10e9, .step_flop = 20e9, .on_cpu = true};
  EXPECT_GT(WallGrace({}, on_cpu, kAtMost), minutes(5));
  EXPECT_GT(AttemptDeadline({}, on_cpu, kAtMost), minutes(10));
}

TEST(AttemptAllowanceTest, LongSamplingIsNoHang) {
  MeasureOptions measure;
  measure.launches = 1;
  measure.max_time = minutes(30);
  EXPECT_GT(AttemptDeadline(measure, {}, kAtMost), minutes(90));
  EXPECT_EQ(WallGrace(measure, {}, kAtMost), minutes(60));
}

TEST(AttemptAllowanceTest, NothingBesideTheSamplingTakesLongerThanTheLimit) {
  const AttemptNeeds endless{.weight_bytes = std::numeric_limits<double>::infinity()};
  EXPECT_EQ(SetupAllowance(endless, kAtMost), kAtMost);
  EXPECT_EQ(AttemptDeadline({}, endless, seconds(2)), seconds(2) + seconds(4));
}

TEST(AttemptAllowanceTest, NeedsAreThoseOfBothArms) {
  const Campaign campaign = SomeCampaignOf(1);
  const CampaignRun run = SomeRunOf(campaign);
  const TrialSpec& trial = run.results.trials[1].spec;
  const AttemptNeeds needs = NeedsOf(campaign, trial, /*on_cpu=*/true);
  EXPECT_GT(needs.weight_bytes, 0);
  EXPECT_LT(needs.weight_bytes, std::numeric_limits<double>::max());
  EXPECT_GT(needs.step_flop, 0);
  Campaign more_tokens = campaign;
  more_tokens.points[0].batch *= 2;
  EXPECT_GT(NeedsOf(more_tokens, trial, /*on_cpu=*/true).step_flop, needs.step_flop);
}

}  // namespace
}  // namespace lastflop
