#include "worker/gpu_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lastflop {
namespace {

GpuDescription SoundGpu() {
  GpuDescription gpu;
  gpu.name = "NVIDIA H200";
  gpu.uuid = "GPU-1";
  gpu.memory_bytes = int64_t{140} << 30;
  gpu.pcie_generation = 5;
  gpu.pcie_generation_max = 5;
  gpu.pcie_width = 16;
  gpu.pcie_width_max = 16;
  gpu.mig = false;
  gpu.persistence = true;
  gpu.ecc = true;
  gpu.nvlinks_up = 18;
  gpu.compute_major = 9;
  return gpu;
}

std::vector<std::string> SubjectsOf(const std::vector<Finding>& findings, const std::string& kind) {
  std::vector<std::string> subjects;
  for (const Finding& finding : findings) {
    if (finding.severity == kind) {
      subjects.push_back(finding.subject);
      EXPECT_FALSE(kind != "ok" && finding.spoils.empty()) << finding.subject;
    }
  }
  return subjects;
}

TEST(GpuFindingsTest, FindsNothingWrongWithASoundGpu) {
  const auto findings = FindingsOfGpu(0, SoundGpu(), GpuTelemetry{}, 2);
  EXPECT_THAT(SubjectsOf(findings, "warning"), testing::IsEmpty());
  EXPECT_THAT(SubjectsOf(findings, "problem"), testing::IsEmpty());
}

TEST(GpuFindingsTest, SaysWhatEachTroubleSpoils) {
  GpuDescription gpu = SoundGpu();
  gpu.mig = true;
  gpu.persistence = false;
  gpu.ecc = false;
  gpu.pcie_width = 4;
  gpu.nvlinks_up = 0;
  GpuTelemetry now;
  now.throttle_reasons = 0x4;  // Power cap.
  now.ecc_errors = 3;
  const auto findings = FindingsOfGpu(1, gpu, now, 2);
  EXPECT_THAT(SubjectsOf(findings, "warning"),
              testing::UnorderedElementsAre("cuda:1 mig", "cuda:1 persistence", "cuda:1 ecc",
                                            "cuda:1 nvlink", "cuda:1 pcie", "cuda:1 throttle"));
  EXPECT_THAT(SubjectsOf(findings, "problem"), testing::ElementsAre("cuda:1 memory errors"));
}

TEST(GpuFindingsTest, CallsAGpuAloneWithoutNvLinkSoundAndSaysWhatIsTakenFromIt) {
  GpuDescription gpu = SoundGpu();
  gpu.nvlinks_up = 0;
  const auto findings = FindingsOfGpu(0, gpu, GpuTelemetry{}, 1);
  EXPECT_THAT(SubjectsOf(findings, "warning"), testing::IsEmpty());
  const auto nvlink = std::find_if(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.subject == "cuda:0 nvlink";
  });
  ASSERT_NE(nvlink, findings.end());
  EXPECT_THAT(nvlink->spoils, testing::HasSubstr("PCIe"));
}

std::vector<GpuDescription> GpusOf(const std::vector<std::string>& names) {
  std::vector<GpuDescription> gpus;
  for (const std::string& name : names) {
    GpuDescription gpu = SoundGpu();
    gpu.name = name;
    gpu.uuid = absl::StrCat("GPU-", gpus.size());
    gpus.push_back(gpu);
  }
  return gpus;
}

TEST(GpuFindingsTest, NamesTheGpusThatAreHidden) {
  const std::vector<GpuDescription> gpus = GpusOf({"H200", "H200"});
  const std::vector<VisibleGpu> second = {{.gpu = 1, .mig_uuid = ""}};
  EXPECT_TRUE(FindingsOfVisibility(gpus, second, std::nullopt, std::nullopt).empty());
  const auto hidden = FindingsOfVisibility(gpus, second, "1", std::nullopt);
  EXPECT_THAT(SubjectsOf(hidden, "ok"), testing::ElementsAre("GPU-0"));
  EXPECT_EQ(hidden.size(), 1);
  EXPECT_THAT(SubjectsOf(FindingsOfVisibility(gpus, {}, "", std::nullopt), "ok"),
              testing::ElementsAre("GPU-0", "GPU-1"));
}

TEST(GpuFindingsTest, WarnsOfNumbersThatMeanOtherGpusToOtherPrograms) {
  const std::vector<GpuDescription> gpus = GpusOf({"T4", "H200"});
  const std::vector<VisibleGpu> both = {{.gpu = 0, .mig_uuid = ""}, {.gpu = 1, .mig_uuid = ""}};
  const auto warnings = [&](const std::vector<GpuDescription>& of, const std::string& variable,
                            const std::optional<std::string>& order) {
    return SubjectsOf(FindingsOfVisibility(of, both, variable, order), "warning");
  };
  EXPECT_THAT(warnings(gpus, "0,1", std::nullopt), testing::ElementsAre("gpu order"));
  EXPECT_THAT(warnings(gpus, "0,1", "FASTEST_FIRST"), testing::ElementsAre("gpu order"));
  EXPECT_THAT(warnings(gpus, "0,1", "PCI_BUS_ID"), testing::IsEmpty());
  EXPECT_THAT(warnings(gpus, "GPU-0,GPU-1", std::nullopt), testing::IsEmpty());
  EXPECT_THAT(warnings(GpusOf({"H200", "H200"}), "0,1", std::nullopt), testing::IsEmpty());
}

TEST(GpuFindingsTest, CallsIdleClocksNoThrottle) {
  GpuTelemetry now;
  now.throttle_reasons = 0x1;  // Idle.
  EXPECT_FALSE(now.is_throttled());
  EXPECT_EQ(now.ThrottleText(), "none");
}

}  // namespace
}  // namespace lastflop
