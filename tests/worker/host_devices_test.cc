#include "worker/host_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lastflop {
namespace {

using ::testing::HasSubstr;

TEST(CheckDeviceTest, TakesRanksThatShareCoresAndGpusThatAreThere) {
  const DeviceCounts host{.num_cores = 2, .num_gpus = 2};
  for (const char* const device : {"cpu:0", "cpu:7", "cpu:15", "cuda:0", "cuda:1"}) {
    EXPECT_TRUE(CheckDevice(device, host).ok()) << device;
  }
}

TEST(CheckDeviceTest, RefusesWhatThisHostDoesNotHaveAndSaysWhatItHas) {
  const DeviceCounts host{.num_cores = 2, .num_gpus = 0};
  for (const char* const device :
       {"", "cpu", "cpu:", "cpu:x", "cpu:-1", "cpu:+1", "cpu:01", "cpu:16", "cpu:99", "cpu:0 ",
        "cpu:99999999999999999999", "cuda:0", "gpu:0"}) {
    const absl::Status status = CheckDevice(device, host);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << device;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cpu:0 to cpu:15 (2 cores")) << device;
    EXPECT_THAT(std::string(status.message()), HasSubstr("no GPU that this build can use"));
  }
  const absl::Status status = CheckDevice("cuda:8", {.num_cores = 64, .num_gpus = 8});
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0 to cuda:7"));
}

TEST(IdentityOfTest, IsTheSameGpuWhateverNumberAProcessHasForIt) {
  const std::vector<GpuIdentity> gpus = {{.uuid = "GPU-a", .mig_uuids = {}},
                                         {.uuid = "GPU-b", .mig_uuids = {}}};
  EXPECT_EQ(IdentityOf("cuda:1", gpus, std::nullopt).lock_name, "GPU-b");
  EXPECT_EQ(IdentityOf("cuda:0", gpus, "1").lock_name, "GPU-b");
  EXPECT_EQ(IdentityOf("cuda:0", gpus, "GPU-b").gpu_uuid, "GPU-b");
  EXPECT_EQ(IdentityOf("cuda:0", gpus, "0").lock_name, "GPU-a");
}

TEST(IdentityOfTest, HoldsTheWholeGpuOfAPart) {
  const std::vector<GpuIdentity> gpus = {{.uuid = "GPU-a", .mig_uuids = {"MIG-1", "MIG-2"}}};
  const DeviceIdentity part = IdentityOf("cuda:0", gpus, "MIG-2");
  EXPECT_EQ(part.lock_name, "GPU-a");
  EXPECT_EQ(part.gpu_uuid, "") << "CUDA names the part";
}

TEST(IdentityOfTest, KeepsTheNameOfWhatIsNoKnownGpu) {
  const std::vector<GpuIdentity> gpus = {{.uuid = "GPU-a", .mig_uuids = {}}};
  EXPECT_EQ(IdentityOf("cpu:3", gpus, std::nullopt).lock_name, "cpu:3");
  EXPECT_EQ(IdentityOf("cuda:1", gpus, std::nullopt).lock_name, "cuda:1");
  EXPECT_EQ(IdentityOf("cuda:0", {}, std::nullopt).lock_name, "cuda:0");
  EXPECT_EQ(IdentityOf("cuda:0", gpus, "").lock_name, "cuda:0");
}

}  // namespace
}  // namespace lastflop
