#include "spec/machine_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/machine_reader.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

Machine Host() {
  Machine machine;
  machine.name = "host";
  machine.device_name = "A \"quoted\" CPU: #1 \\ 2\t";
  machine.architecture = "x86_64 avx2";
  machine.num_devices = 8;
  machine.num_cores = 8;
  machine.memory_bytes = 33'123'456'789;
  machine.l2_bytes = 33'554'432;
  machine.peak_bf16_tflop_per_s = 989;
  machine.measured_bf16_tflop_per_s = 0.612345678;
  machine.measured_link_gb_per_s = 12.5;
  machine.collective_latency_us = 1.25;
  machine.launch_gap_us = 0.75;
  machine.link = "shared_memory";
  machine.cold_read = {{.bytes = 1'048'576, .us = 33.25}, {.bytes = 134'217'728, .us = 5012.5}};
  machine.source = "detected";
  return machine;
}

TEST(MachineYamlTest, IsReadBackAsTheSameMachine) {
  const Machine machine = Host();
  const std::string yaml = MachineYaml(machine, {{"cold_read", "measured: twice"}});
  const absl::StatusOr<Machine> read = ReadMachine(yaml, "host.yaml");
  ASSERT_TRUE(read.ok()) << read.status() << "\n" << yaml;
  EXPECT_EQ(read->name, machine.name);
  EXPECT_EQ(read->backend, "cpu");
  EXPECT_EQ(read->device_name, machine.device_name);
  EXPECT_EQ(read->num_cores, 8);
  EXPECT_EQ(read->memory_bytes, machine.memory_bytes);
  EXPECT_EQ(read->peak_bf16_tflop_per_s, 989);
  EXPECT_EQ(read->peak_bandwidth_gb_per_s, std::nullopt);
  EXPECT_NEAR(*read->measured_bf16_tflop_per_s, 0.612345678, 1e-6);
  EXPECT_EQ(read->measured_link_gb_per_s, 12.5);
  EXPECT_EQ(read->collective_latency_us, 1.25);
  EXPECT_EQ(read->launch_gap_us, 0.75);
  EXPECT_EQ(read->link, "shared_memory");
  ASSERT_EQ(read->cold_read.size(), 2u);
  EXPECT_EQ(read->cold_read[1].bytes, 134'217'728);
  EXPECT_EQ(read->cold_read[1].us, 5012.5);
  EXPECT_EQ(read->source, "detected; cold_read: measured: twice");
}

TEST(MachineYamlTest, GivesEachNumberItsOriginAndLeavesOutWhatIsUnknown) {
  const std::string yaml = MachineYaml(
      Host(), {{"collective_latency_us", "measured on 2 ranks"}, {"launch_gap_us", "x"}});
  EXPECT_THAT(yaml,
              HasSubstr("collective_latency_us: {value: 1.25, source: \"measured on 2 ranks\"}\n"));
  EXPECT_THAT(yaml, HasSubstr("num_cores: 8\n"));
  EXPECT_THAT(yaml, ::testing::Not(HasSubstr("peak_fp8")));
}

}  // namespace
}  // namespace lastflop
