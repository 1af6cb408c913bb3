#include "cli/calibrated_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spec/machine_reader.h"
#include "spec/machine_writer.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

std::string Row(double bytes, double us, const char* chain = "dependent", bool correct = true) {
  return absl::StrCat(R"({"operation": "all_reduce", "algorithm": "one_shot", "asked": "auto", )",
                      R"("ranks": 4, "bytes": )", bytes, R"(, "us": )", us, R"(, "chain": ")",
                      chain, R"(", "correct": )", correct ? "true" : "false", "}");
}
std::string Document(const std::vector<std::string>& rows) {
  return absl::StrCat(R"({"environment": {}, "rows": [)", absl::StrJoin(rows, ","), "]}");
}

Machine MeasuredGpu() {
  Machine machine;
  machine.backend = "cuda";
  machine.device_name = "NVIDIA H200";
  machine.num_devices = 2;
  machine.memory_bytes = 149'000'000'000;
  machine.measured_bf16_tflop_per_s = 760;
  machine.cold_read = {{.bytes = 8e6, .us = 3.7}};
  return machine;
}

TEST(AddAllReducesTest, SplitsTwoSizesIntoLatencyAndRate) {
  CalibratedMachine calibrated{.machine = MeasuredGpu(), .origins = {}, .left_out = {}};
  // 4 ranks send 1.5 times the bytes: 3,000 in 7 us, 1,503,000 in 57 us; 30 GB/s, and 6.9 us.
  const std::string rows = Document({Row(2000, 7), Row(1'002'000, 57), Row(500, 1, "independent"),
                                     Row(9'000'000, 60, "dependent", false)});
  ASSERT_TRUE(AddAllReduces(rows, "`calibrate`, 2026-01-02", calibrated).ok());
  EXPECT_NEAR(*calibrated.machine.measured_link_gb_per_s, 30, 1e-9);
  EXPECT_NEAR(*calibrated.machine.collective_latency_us, 6.9, 1e-9);
  EXPECT_THAT(calibrated.origins["collective_latency_us"],
              HasSubstr("measured by `calibrate`, 2026-01-02: all-reduces in a chain, 4 ranks"));
}

TEST(AddAllReducesTest, LeavesOutWhatCannotBeTold) {
  for (const std::string& rows :
       {std::string("no JSON"), Document({}), Document({Row(2000, 7)}),
        Document({Row(2000, 7), Row(1'000'000, 6)}),
        Document({Row(2000, 7), Row(1'000'000, 50, "dependent", false)})}) {
    CalibratedMachine calibrated;
    EXPECT_EQ(AddAllReduces(rows, "now", calibrated).code(), absl::StatusCode::kNotFound) << rows;
    EXPECT_FALSE(calibrated.machine.measured_link_gb_per_s.has_value());
    EXPECT_FALSE(calibrated.machine.collective_latency_us.has_value());
  }
}

TEST(AddAllReducesTest, LeavesOutALatencyThatIsNoneAndKeepsTheFile) {
  CalibratedMachine calibrated = DescribeMeasured(MeasuredGpu(), "now");
  // 1.5 and 3 MB sent in 10 and 50 us: the rate explains more than the first took.
  ASSERT_TRUE(
      AddAllReduces(Document({Row(1'000'000, 10), Row(2'000'000, 50)}), "now", calibrated).ok());
  EXPECT_FALSE(calibrated.machine.collective_latency_us.has_value());
  EXPECT_FALSE(calibrated.origins.contains("collective_latency_us"));
  EXPECT_TRUE(calibrated.machine.measured_link_gb_per_s.has_value());
  ASSERT_EQ(calibrated.left_out.size(), 1);
  EXPECT_THAT(calibrated.left_out[0], HasSubstr("collective_latency_us is left out: 1e+06 bytes"));
  calibrated.machine.name = "m";
  const std::string yaml = MachineYaml(calibrated.machine, calibrated.origins);
  EXPECT_TRUE(ReadMachine(yaml, "m.yaml").ok()) << ReadMachine(yaml, "m.yaml").status();
}

TEST(AddDeclaredTest, AddsPeaksAndReplacesNothingThatWasMeasured) {
  CalibratedMachine calibrated = DescribeMeasured(MeasuredGpu(), "`calibrate`, today");
  calibrated.machine.collective_latency_us = 7;
  Machine declared;
  declared.peak_bf16_tflop_per_s = 989;
  declared.collective_latency_us = 20;
  AddDeclared(declared, "machines/h200-x8.yaml", calibrated);
  EXPECT_EQ(calibrated.machine.peak_bf16_tflop_per_s, 989);
  EXPECT_EQ(calibrated.machine.measured_bf16_tflop_per_s, 760);
  EXPECT_EQ(calibrated.machine.collective_latency_us, 7);
  EXPECT_THAT(calibrated.origins["peak_bf16_tflop_per_s"], HasSubstr("machines/h200-x8.yaml"));
}

TEST(DescribeMeasuredTest, GivesEveryMeasuredNumberAnOriginThatTheFileKeeps) {
  CalibratedMachine calibrated = DescribeMeasured(MeasuredGpu(), "`calibrate`, today");
  calibrated.machine.name = MachineFileName(calibrated.machine);
  const std::string yaml = MachineYaml(calibrated.machine, calibrated.origins);
  const absl::StatusOr<Machine> machine = ReadMachine(yaml, "m.yaml");
  ASSERT_TRUE(machine.ok()) << machine.status() << yaml;
  EXPECT_EQ(machine->name, "nvidia-h200-x2");
  EXPECT_THAT(machine->source, HasSubstr("cold_read: measured by `calibrate`, today: median of 9"));
  EXPECT_THAT(machine->source,
              HasSubstr("measured_bf16_tflop_per_s: measured by `calibrate`, today: fastest"));
}

TEST(MachineFileNameTest, IsAWordOfAnyDevice) {
  Machine machine;
  machine.device_name = "AMD EPYC(tm) 7R13 / 48-Core ";
  EXPECT_EQ(MachineFileName(machine), "amd-epyc-tm-7r13-48-core");
  machine.device_name = "../..";
  EXPECT_EQ(MachineFileName(machine), "cpu");
}

}  // namespace
}  // namespace lastflop
