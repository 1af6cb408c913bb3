#include "coordinator/lease.h"

#include <gtest/gtest.h>
#include <sys/un.h>

#include "tests/coordinator/some_run.h"

namespace lastflop {
namespace {

TEST(LeaseTest, SplitsTheTrialsPairsAndTimeOverItsLaunches) {
  Campaign campaign = SomeCampaignOf(1, /*launches=*/4);
  campaign.measure.min_pairs = 30;
  campaign.measure.max_time = std::chrono::milliseconds(3000);
  const CampaignRun run = SomeRunOf(campaign);
  const AttemptSpec attempt =
      MakeLeases(run, {.trial = 1, .launch = 2, .worker_ids = {"w0"}}, "a1", "key", {})[0].attempt;
  EXPECT_EQ(attempt.min_pairs, 8) << "rounded up: never fewer than asked for";
  EXPECT_EQ(attempt.max_time, std::chrono::milliseconds(750));
  EXPECT_FALSE(attempt.breakdown) << "only a baseline has one";
}

TEST(LeaseTest, BreaksDownBothArmsInEveryLaunchForAClaimAboutAPart) {
  Campaign campaign = SomeCampaignOf(2, /*launches=*/3);
  campaign.interventions[0].claim = Claim{.low = 2, .of = "moe"};
  const auto has_breakdown = [](const CampaignRun& run, size_t trial, int launch) {
    return MakeLeases(run, {.trial = trial, .launch = launch, .worker_ids = {"w0"}}, "a", "k",
                      {})[0]
        .attempt.breakdown;
  };
  const CampaignRun run = SomeRunOf(campaign);
  for (const int launch : {0, 2}) {
    EXPECT_TRUE(has_breakdown(run, 0, launch));
    EXPECT_TRUE(has_breakdown(run, 1, launch));
    EXPECT_FALSE(has_breakdown(run, 2, launch)) << "it claims nothing";
  }
  campaign.interventions[0].claim->batch_low = 1 << 20;
  EXPECT_FALSE(has_breakdown(SomeRunOf(campaign), 1, 0)) << "nothing is claimed at this batch";
}

TEST(LeaseTest, EveryMemberGetsTheSameAttemptAndItsOwnRank) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(1, 1, 2));
  const std::vector<LeaseMessage> leases =
      MakeLeases(run, {.trial = 0, .num_ranks = 2, .worker_ids = {"w0", "w1"}}, "a1", "key", {});
  ASSERT_EQ(leases.size(), 2u);
  EXPECT_EQ(leases[0].place.rank, 0);
  EXPECT_EQ(leases[1].place.rank, 1);
  EXPECT_EQ(leases[0].attempt.seed, leases[1].attempt.seed);
  EXPECT_EQ(leases[0].place.rendezvous, leases[1].place.rendezvous);
  EXPECT_FALSE(leases[0].place.rendezvous.empty());
  EXPECT_LT(leases[0].place.rendezvous.size(), sizeof(sockaddr_un::sun_path));
  EXPECT_TRUE(leases[0].attempt.breakdown);
}

TEST(LeaseTest, DataDiffersBetweenLaunchesAndIsTheSameForAllTrialsOfOne) {
  const CampaignRun run = SomeRunOf(SomeCampaignOf(1, 2));
  const auto lease = [&run](size_t trial, int launch) {
    return MakeLeases(run, {.trial = trial, .launch = launch, .worker_ids = {"w0"}}, "a", "k",
                      {})[0];
  };
  EXPECT_EQ(lease(0, 0).launch.data_seed, lease(1, 0).launch.data_seed);
  EXPECT_NE(lease(0, 0).launch.data_seed, lease(0, 1).launch.data_seed);
  EXPECT_NE(lease(0, 0).attempt.seed, lease(1, 0).attempt.seed);
  EXPECT_EQ(lease(0, 0).attempt.seed, lease(0, 0).attempt.seed);
}

TEST(LeaseTest, TrialsOfALaunchShareChildrenUnlessRanksOrEnvironmentDiffer) {
  Campaign campaign = SomeCampaignOf(2);
  campaign.interventions[1].set.push_back({"parallel.data", "2"});
  const CampaignRun run = SomeRunOf(campaign);
  const auto base = [&run](size_t trial, int launch, int num_ranks) {
    return LaunchBase(
        run, {.trial = trial, .launch = launch, .num_ranks = num_ranks, .worker_ids = {"w0"}});
  };
  EXPECT_EQ(base(0, 0, 1), base(1, 0, 1));
  EXPECT_NE(base(0, 0, 1), base(0, 1, 1));
  EXPECT_NE(base(0, 0, 1), base(2, 0, 2));
}

}  // namespace
}  // namespace lastflop
