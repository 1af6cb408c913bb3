#include "spec/machine_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace lastflop {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kMachine[] = R"yaml(schema: 1
name: lab
backend: cuda
device_name: NVIDIA H200
architecture: sm_90a
num_devices: 8
memory_bytes: 150000000000
l2_bytes: {value: 62914560, source: reported by the driver}
peak_bandwidth_gb_per_s: {value: 4800, source: vendor's data sheet}
link: nvlink
cold_read:
  source: measured
  points: [{bytes: 8e6, us: 3.7}, {bytes: 24e6, us: 7.6}]
source: notes
)yaml";

std::string Refused(const std::string& from, const std::string& to) {
  std::string text = kMachine;
  const size_t found = text.find(from);
  EXPECT_NE(found, std::string::npos) << from;
  text.replace(found, from.size(), to);
  return std::string(ReadMachine(text, "m.yaml").status().message());
}

TEST(MachineReaderTest, ReadsNumbersWithTheirSources) {
  const absl::StatusOr<Machine> machine = ReadMachine(kMachine, "m.yaml");
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->num_devices, 8);
  EXPECT_EQ(machine->l2_bytes, 62914560);
  EXPECT_EQ(machine->peak_bandwidth_gb_per_s, 4800);
  EXPECT_EQ(machine->peak_fp8_tflop_per_s, std::nullopt);
  ASSERT_EQ(machine->cold_read.size(), 2u);
  EXPECT_EQ(machine->cold_read[1].us, 7.6);
  EXPECT_EQ(machine->source,
            "notes; l2_bytes: reported by the driver; peak_bandwidth_gb_per_s: vendor's data "
            "sheet; cold_read: measured");
}

TEST(MachineReaderTest, TakesUnlikelyPeaksAsTheyAre) {
  EXPECT_EQ(Refused("value: 4800", "value: 0.001"), "");
}

TEST(MachineReaderTest, RefusesWhatIsNoMachine) {
  EXPECT_THAT(Refused("value: 4800", "value: 0"),
              StartsWith("m.yaml:9:34: peak_bandwidth_gb_per_s.value: "));
  EXPECT_THAT(Refused("source: notes\n", ""), HasSubstr("m.yaml:6:14: num_devices: no source"));
  EXPECT_THAT(Refused("link: nvlink", "link: nvlnk"), HasSubstr("did you mean \"nvlink\"?"));
  EXPECT_THAT(Refused("l2_bytes", "l2_byte"), HasSubstr("did you mean \"l2_bytes\"?"));
  EXPECT_THAT(Refused("bytes: 24e6", "bytes: 8e6"), HasSubstr("cold_read.points[1].bytes"));
  EXPECT_THAT(Refused("backend: cuda", "backend: tpu"), HasSubstr("cpu, cuda"));
  EXPECT_THAT(Refused("num_devices: 8", "num_devices: 08"), HasSubstr("leading zero"));
  EXPECT_THAT(std::string(ReadMachine("[]", "m.yaml").status().message()),
              StartsWith("m.yaml:1:1: (file): a list of 0 must be a map"));
}

TEST(MachineReaderTest, FindsAMachineBesideTheCampaignFirst) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "machine_reader";
  std::filesystem::create_directories(root / "machines");
  std::filesystem::create_directories(root / "shared");
  std::ofstream(root / "machines" / "mine.yaml") << kMachine;
  std::ofstream(root / "shared" / "mine.yaml") << kMachine;
  std::ofstream(root / "shared" / "theirs.yaml") << kMachine;
  const std::string shared = (root / "shared").string();
  EXPECT_EQ(*FindMachineFile("mine", root.string(), shared),
            (root / "machines" / "mine.yaml").string());
  EXPECT_EQ(*FindMachineFile("theirs", root.string(), shared),
            (root / "shared" / "theirs.yaml").string());
  EXPECT_EQ(*FindMachineFile("other/x.yaml", root.string(), shared),
            (root / "other" / "x.yaml").string());
  const absl::Status unknown = FindMachineFile("their", root.string(), shared).status();
  EXPECT_EQ(unknown.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("did you mean \"theirs\"?"));
}

}  // namespace
}  // namespace lastflop
