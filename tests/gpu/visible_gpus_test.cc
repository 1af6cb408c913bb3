#include "gpu/visible_gpus.h"

#include <gtest/gtest.h>

namespace lastflop {
namespace {

constexpr char kA[] = "GPU-43fb91ba-df50-f1fc-958e-837f43a12b41";
constexpr char kB[] = "GPU-8ba4de82-3e9f-8b13-4dab-0496da041e52";

std::vector<VisibleGpu> Whole(const std::vector<int>& gpus) {
  std::vector<VisibleGpu> visible;
  for (const int gpu : gpus) {
    visible.push_back({.gpu = gpu, .mig_uuid = ""});
  }
  return visible;
}

struct Case {
  std::optional<std::string> variable;
  std::vector<int> seen;
};

// Each row is what cuDeviceGetCount and cuDeviceGetUuid answered on two H200s, CUDA 13.0.
TEST(VisibleGpusTest, SeesWhatTheDriverOfTwoH200sShowed) {
  const std::string a = kA;
  const std::string b = kB;
  const std::vector<Case> cases = {
      {std::nullopt, {0, 1}},
      {"", {}},
      {"0", {0}},
      {"1", {1}},
      {"1,0", {1, 0}},
      {"0,0", {}},
      {"0,1,0", {}},
      {"-1", {}},
      {"0,-1", {0}},
      {"2", {}},
      {"0,2,1", {0}},
      {"1,2", {1}},
      {"NoDevFiles", {}},
      {"all", {}},
      {"none", {}},
      {" 1", {1}},
      {"\t1", {1}},
      {"1\n", {1}},
      {"1 ,0", {1, 0}},
      {"1, 0", {1, 0}},
      {",0", {}},
      {"0,,1", {0}},
      {"0,", {0}},
      {"1a", {1}},
      {"1gpu,0", {1, 0}},
      {"1,1a", {}},
      {"+1", {1}},
      {"01", {1}},
      {"0x1", {0}},
      {"1.0", {1}},
      {"0;1", {0}},
      {"99999999999999999999", {}},
      {"4294967297", {1}},
      {a, {0}},
      {b, {1}},
      {b + "," + a, {1, 0}},
      {a + "," + a, {}},
      {a + ",GPU-43fb91ba", {}},
      {"GPU-43fb91,GPU-8ba4de", {0, 1}},
      {"GPU-", {}},
      {"GPU-," + b, {}},
      {"GPU-zz", {}},
      {a + ",GPU-zz," + b, {0}},
      {"GPU-43FB91BA-DF50-F1FC-958E-837F43A12B41", {0}},
      {"gpu-43fb91ba-df50-f1fc-958e-837f43a12b41", {}},
      {"43fb91ba-df50-f1fc-958e-837f43a12b41", {}},
      {"GPU-43fb91bax", {}},
      {"0," + b, {0}},
      {b + ",0", {1}},
      {a + ",1", {0}},
      {" " + a, {}},
      {b + " ," + a, {1, 0}},
      {b + ", " + a, {1}},
      {"MIG-" + a + "/1/0", {}},
      {"MIG-0000,0", {}},
  };
  const std::vector<GpuIdentity> gpus = {{.uuid = a, .mig_uuids = {}},
                                         {.uuid = b, .mig_uuids = {}}};
  for (const Case& one : cases) {
    EXPECT_EQ(VisibleGpus(gpus, one.variable), Whole(one.seen)) << one.variable.value_or("(unset)");
  }
}

// As NVIDIA's MIG guide has it ("CUDA device enumeration"); not seen on a GPU.
TEST(VisibleGpusTest, SeesOnePartOfADividedGpuAndNothingBeside) {
  const std::vector<GpuIdentity> gpus = {{.uuid = kA, .mig_uuids = {}},
                                         {.uuid = kB, .mig_uuids = {"MIG-11-a", "MIG-12-b"}}};
  const std::vector<VisibleGpu> first = {{.gpu = 1, .mig_uuid = "MIG-11-a"}};
  const std::vector<VisibleGpu> second = {{.gpu = 1, .mig_uuid = "MIG-12-b"}};
  EXPECT_EQ(VisibleGpus(gpus, std::nullopt), first);
  EXPECT_EQ(VisibleGpus(gpus, "1"), first);
  EXPECT_EQ(VisibleGpus(gpus, "0,1"), first);
  EXPECT_EQ(VisibleGpus(gpus, "0"), Whole({0}));
  EXPECT_EQ(VisibleGpus(gpus, "MIG-12-B"), second);
  EXPECT_EQ(VisibleGpus(gpus, "MIG-12,MIG-11"), second);
  EXPECT_EQ(VisibleGpus(gpus, "MIG-1"), Whole({})) << "both begin so";
  EXPECT_EQ(VisibleGpus(gpus, "MIG-99"), Whole({}));
  EXPECT_EQ(VisibleGpus(gpus, std::string("MIG-") + kB + "/2/0"),
            (std::vector<VisibleGpu>{{.gpu = 1, .mig_uuid = std::string("MIG-") + kB + "/2/0"}}));
}

TEST(VisibleGpusTest, SeesNothingWhereThereIsNothing) {
  EXPECT_TRUE(VisibleGpus({}, std::nullopt).empty());
  EXPECT_TRUE(VisibleGpus({}, "0").empty());
}

}  // namespace
}  // namespace lastflop
