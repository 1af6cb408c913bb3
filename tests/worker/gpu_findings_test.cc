#include "worker/gpu_findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

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

TEST(GpuFindingsTest, CallsIdleClocksNoThrottle) {
  GpuTelemetry now;
  now.throttle_reasons = 0x1;  // Idle.
  EXPECT_FALSE(now.is_throttled());
  EXPECT_EQ(now.ThrottleText(), "none");
}

}  // namespace
}  // namespace lastflop
