#include "cli/local_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lastflop {
namespace {

using testing::ElementsAre;

Campaign For(const std::string& backend) {
  Campaign campaign;
  campaign.machine_auto = backend.empty();
  campaign.machine.name = "some-machine";
  campaign.machine.backend = backend;
  return campaign;
}

TEST(LocalDevicesTest, TakesTheGpusOfTheHostWhenTheMachineIsAuto) {
  const auto devices = ChooseLocalDevices(For(""), {"cuda:0", "cuda:1"}, 0, 2);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cuda:0", "cuda:1"));
  EXPECT_FALSE(devices->are_fewer_than_ranks);
}

TEST(LocalDevicesTest, SaysThatThereAreFewerGpusThanRanks) {
  const auto devices = ChooseLocalDevices(For("cuda"), {"cuda:0"}, 0, 8);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cuda:0"));
  EXPECT_TRUE(devices->are_fewer_than_ranks);
}

TEST(LocalDevicesTest, GivesEveryRankAWorkerOnTheCpu) {
  const auto devices = ChooseLocalDevices(For(""), {"cpu:0"}, 0, 2);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cpu:0", "cpu:1"));
}

TEST(LocalDevicesTest, MeasuresTheCpuOfAHostWithGpusWhenTheCampaignIsForOne) {
  const auto devices = ChooseLocalDevices(For("cpu"), {"cuda:0"}, 0, 1);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cpu:0"));
}

TEST(LocalDevicesTest, RefusesToRankACpuForACampaignOfGpus) {
  const auto devices = ChooseLocalDevices(For("cuda"), {"cpu:0"}, 0, 8);
  ASSERT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(devices.status().message()), testing::HasSubstr("some-machine"));
}

TEST(LocalDevicesTest, RefusesMoreWorkersThanGpus) {
  EXPECT_FALSE(ChooseLocalDevices(For("cuda"), {"cuda:0"}, 2, 2).ok());
}

TEST(CheckHoldsBaselineTest, RefusesWhatCouldMeasureNothing) {
  TrialSpec baseline;
  baseline.intervention_id = kBaselineId;
  baseline.baseline.parallel.tensor = 2;
  TrialSpec wide = baseline;
  wide.intervention_id = "wide";
  wide.variant.parallel.tensor = 4;
  const std::vector<TrialSpec> trials = {baseline, wide};
  const absl::Status one = CheckHoldsBaseline(trials, 1, std::nullopt);
  EXPECT_EQ(one.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(one.message(),
            "the baseline has 2 ranks, a worker each, and --workers or this host allows 1: nothing "
            "could be measured");
  EXPECT_FALSE(CheckHoldsBaseline(trials, 1, Fidelity::kFull).ok());
  EXPECT_TRUE(CheckHoldsBaseline(trials, 1, Fidelity::kShard).ok());
  EXPECT_TRUE(CheckHoldsBaseline(trials, 2, std::nullopt).ok()) << "wide is a finding";
  baseline.settled = Standing::kInfeasible;
  EXPECT_TRUE(CheckHoldsBaseline({baseline, wide}, 1, std::nullopt).ok());
}

}  // namespace
}  // namespace lastflop
