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

HostDeviceList Host(const std::vector<std::string>& names, const std::string& unused_gpus = "") {
  return {.names = names, .unused_gpus = unused_gpus};
}

TEST(LocalDevicesTest, TakesTheGpusOfTheHostWhenTheMachineIsAuto) {
  const auto devices = ChooseLocalDevices(For(""), Host({"cuda:0", "cuda:1"}), 0, 2);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cuda:0", "cuda:1"));
  EXPECT_FALSE(devices->are_fewer_than_ranks);
}

TEST(LocalDevicesTest, SaysThatThereAreFewerGpusThanRanks) {
  const auto devices = ChooseLocalDevices(For("cuda"), Host({"cuda:0"}), 0, 8);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cuda:0"));
  EXPECT_TRUE(devices->are_fewer_than_ranks);
}

TEST(LocalDevicesTest, GivesEveryRankAWorkerOnTheCpu) {
  const auto devices = ChooseLocalDevices(For(""), Host({"cpu:0"}), 0, 2);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cpu:0", "cpu:1"));
}

TEST(LocalDevicesTest, MeasuresTheCpuOfAHostWithGpusWhenTheCampaignIsForOne) {
  const auto devices = ChooseLocalDevices(For("cpu"), Host({"cuda:0"}), 0, 1);
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(devices->names, ElementsAre("cpu:0"));
}

TEST(LocalDevicesTest, RefusesToRankACpuForACampaignOfGpus) {
  const auto devices = ChooseLocalDevices(For("cuda"), Host({"cpu:0"}), 0, 8);
  ASSERT_EQ(devices.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(devices.status().message()), testing::HasSubstr("some-machine"));
}

TEST(LocalDevicesTest, SaysWhyTheCpuIsTakenOnAHostWithGpus) {
  const HostDeviceList host = Host({"cpu:0"}, "2 NVIDIA GPUs and no backend");
  const auto automatic = ChooseLocalDevices(For(""), host, 0, 1);
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  EXPECT_EQ(automatic->warning, "2 NVIDIA GPUs and no backend");
  const auto meant = ChooseLocalDevices(For("cpu"), host, 0, 1);
  ASSERT_TRUE(meant.ok()) << meant.status();
  EXPECT_EQ(meant->warning, "") << "the campaign names a CPU";
  EXPECT_THAT(std::string(ChooseLocalDevices(For("cuda"), host, 0, 1).status().message()),
              testing::HasSubstr("2 NVIDIA GPUs and no backend"));
}

TEST(LocalDevicesTest, RefusesMoreWorkersThanGpus) {
  EXPECT_FALSE(ChooseLocalDevices(For("cuda"), Host({"cuda:0"}), 2, 2).ok());
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
