#include "worker/gpu_presence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

using testing::HasSubstr;

constexpr int kCuda13 = 13000;

std::string TextOf(const GpuPresence& presence) {
  const std::optional<UnusedGpus> unused = FindUnusedGpus(presence);
  return unused.has_value() ? unused->Text() : "";
}

TEST(GpuPresenceTest, SaysNothingWhereThereIsNoGpuOrItIsUsed) {
  EXPECT_EQ(TextOf({.num_seen = 0, .nvml_error = "no libnvidia-ml.so.1"}), "");
  EXPECT_EQ(TextOf({.num_seen = 2, .num_usable = 2, .build_cuda = kCuda13, .driver_cuda = kCuda13}),
            "");
  EXPECT_EQ(TextOf({.num_seen = 8,
                    .num_usable = 1,
                    .visible_devices = "3",
                    .build_cuda = kCuda13,
                    .driver_cuda = 0}),
            "")
      << "some are shown, as was asked for";
}

TEST(GpuPresenceTest, SaysThatABuildWithoutCudaMeasuresTheCpuAndWhatToDo) {
  EXPECT_EQ(TextOf({.num_seen = 2, .num_usable = 2, .build_cuda = 0, .driver_cuda = kCuda13}),
            "this host has 2 NVIDIA GPUs, and this build has no CUDA backend: every result is of "
            "the CPU; build with LASTFLOP_CUDA=on where nvcc is");
}

TEST(GpuPresenceTest, SaysWhatKeepsABuildWithCudaFromThem) {
  EXPECT_THAT(TextOf({.num_seen = 1, .nvml_error = "status 999", .build_cuda = kCuda13}),
              testing::AllOf(HasSubstr("1 NVIDIA GPU, and NVML shows none (status 999)"),
                             HasSubstr("of the CPU"), HasSubstr("nvidia-smi")));
  EXPECT_THAT(TextOf({.num_seen = 2, .visible_devices = "", .build_cuda = kCuda13}),
              HasSubstr("CUDA_VISIBLE_DEVICES= shows none"));
  EXPECT_THAT(TextOf({.num_seen = 2, .num_usable = 2, .build_cuda = kCuda13, .driver_cuda = 12040}),
              HasSubstr("a driver for CUDA 12.4 at most, where this build is of 13.0"));
  EXPECT_EQ(TextOf({.num_seen = 2, .num_usable = 2, .build_cuda = 13020, .driver_cuda = kCuda13}),
            "")
      << "CUDA promises that one major version runs";
}

TEST(GpuPresenceTest, CountsGpusWithoutNvml) {
  const std::filesystem::path root =
      std::filesystem::path(testing::TempDir()) / absl::StrCat("gpus-", getpid());
  EXPECT_EQ(CountGpusBelow(root.string()), 0);
  std::filesystem::create_directories(root / "dev");
  for (const char* name : {"nvidia0", "nvidia1", "nvidia17", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(root / "dev" / name) << "";
  }
  EXPECT_EQ(CountGpusBelow(root.string()), 3);
  std::filesystem::create_directories(root / "proc/driver/nvidia/gpus/0000:00:06.0");
  std::filesystem::create_directories(root / "proc/driver/nvidia/gpus/0000:00:07.0");
  EXPECT_EQ(CountGpusBelow(root.string()), 2) << "the module's word comes first";
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace lastflop
