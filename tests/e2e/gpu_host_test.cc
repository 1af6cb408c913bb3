// A host with two GPUs, by a driver library that only says so (fake_nvml.c). They are hidden from
// CUDA, so that a build with the CUDA backend finds as little to run on as one without it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/e2e/program.h"
#include "tests/e2e/tiny_campaign.h"

namespace lastflop {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kWarning[] = "this host has 2 NVIDIA GPUs, and ";

class GpuHostTest : public testing::Test {
 protected:
  GpuHostTest() {
    setenv("LASTFLOP_NVML_LIBRARY", LASTFLOP_FAKE_NVML, 1);
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
  }
  ~GpuHostTest() override {
    unsetenv("LASTFLOP_NVML_LIBRARY");
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  const TestFolder folder_;
};

constexpr char kOneIntervention[] = R"(
  - {id: fused, title: Fused kernel, tier: 2, effort: 1d, set: {moe.kernel: fused}}
)";

TEST_F(GpuHostTest, ARunThatTakesTheCpuSaysSoBeforeItStartsAndInItsReport) {
  const std::string file = WriteTinyCampaign(folder_, kOneIntervention);
  Program run(folder_.path(), "lastflop",
              {"run", file, "--db", folder_.path() + "/r.db", "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const std::string err = run.Err();
  EXPECT_EQ(err.find(std::string("WARNING: ") + kWarning), 0u) << err;
  EXPECT_THAT(err, HasSubstr("every result is of the CPU"));
  const json report = json::parse(run.Out());
  EXPECT_THAT(report.at("warnings").get<std::vector<std::string>>(), Contains(HasSubstr(kWarning)));
  EXPECT_THAT(report.at("environment").at("unused_gpus").get<std::string>(), HasSubstr(kWarning));
}

TEST_F(GpuHostTest, ACampaignForTheCpuIsNotWarnedOf) {
  folder_.Write("machines/this-cpu.yaml",
                "schema: 1\nname: this-cpu\nsource: test\nbackend: cpu\nnum_devices: 1\n"
                "num_cores: 1\nmemory_bytes: 1000000000\npeak_bandwidth_gb_per_s: 1000\n");
  const std::string file = WriteTinyCampaign(folder_, kOneIntervention);
  Program run(
      folder_.path(), "lastflop",
      {"run", file, "--set", "machine=this-cpu", "--db", folder_.path() + "/r.db", "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  EXPECT_THAT(run.Err(), Not(HasSubstr("WARNING")));
  EXPECT_THAT(json::parse(run.Out()).at("warnings").get<std::vector<std::string>>(),
              Not(Contains(HasSubstr(kWarning))));
}

TEST_F(GpuHostTest, TheDoctorNamesEveryGpuAndWhyItIsNotUsed) {
  Program doctor(folder_.path(), "lastflop", {"doctor", "-o", "csv"});
  ASSERT_EQ(doctor.Wait(), 0) << doctor.Err();
  EXPECT_THAT(doctor.Out(), AllOf(HasSubstr("problem,gpu"), HasSubstr("2 NVIDIA GPUs, and "),
                                  HasSubstr("GPU-aaaa-0"), HasSubstr("GPU-bbbb-1"),
                                  HasSubstr("hidden by CUDA_VISIBLE_DEVICES=")));
}

TEST_F(GpuHostTest, DevicesFollowTheListAsTheDriverReadsIt) {
  setenv("CUDA_VISIBLE_DEVICES", "GPU-bbbb,GPU-aaaa", 1);
  Program doctor(folder_.path(), "lastflop-worker", {"--print", "devices"});
  ASSERT_EQ(doctor.Wait(), 0) << doctor.Err();
  const json devices = json::parse(doctor.Out());
  if (devices.at("cuda_backend").get<bool>()) {
    EXPECT_EQ(devices.at("devices"), json::array({"cuda:0", "cuda:1"}));
    EXPECT_EQ(devices.at("unused_gpus"), "");
  } else {
    EXPECT_EQ(devices.at("devices"), json::array({"cpu:0"}));
    EXPECT_THAT(devices.at("unused_gpus").get<std::string>(), HasSubstr("no CUDA backend"));
  }
}

}  // namespace
}  // namespace lastflop
