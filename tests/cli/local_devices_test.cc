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

}  // namespace
}  // namespace lastflop
