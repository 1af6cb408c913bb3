// `lastflop calibrate` on the CPU: real measurements, and a file that the product reads back.
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spec/machine_reader.h"
#include "tests/e2e/program.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

TEST(CalibrateTest, MeasuresTheCpuIntoAMachineFileThatIsReadBack) {
  const TestFolder folder;
  const std::string file = folder.path() + "/machines/host.yaml";
  Program program(
      folder.path(), "lastflop",
      {"calibrate", "--device", "cpu:0", "--name", "host", "--out", folder.path() + "/machines/"});
  ASSERT_EQ(program.Wait(std::chrono::seconds(120)), 0) << program.Err();
  EXPECT_EQ(program.Out(), "");
  const absl::StatusOr<Machine> machine = ReadMachineFile(file);
  ASSERT_TRUE(machine.ok()) << machine.status();
  EXPECT_EQ(machine->name, "host");
  EXPECT_EQ(machine->backend, "cpu");
  ASSERT_GE(machine->cold_read.size(), 3u);
  EXPECT_GT(*machine->measured_bf16_tflop_per_s, 1e-3);
  EXPECT_FALSE(machine->peak_bf16_tflop_per_s.has_value()) << "nothing declares a CPU's peak";
  std::vector<std::string> keys = {"cold_read", "measured_bf16_tflop_per_s"};
  // On a busy host a large all-reduce may be no slower than a small one: then both are left out.
  if (machine->collective_latency_us.has_value()) {
    EXPECT_GE(*machine->collective_latency_us, 0);
    EXPECT_GT(machine->measured_link_gb_per_s.value_or(0), 0);
    keys.insert(keys.end(), {"collective_latency_us", "measured_link_gb_per_s"});
  } else {
    EXPECT_THAT(program.Err(), HasSubstr("all-reduces are left out"));
  }
  for (const std::string& key : keys) {
    EXPECT_THAT(machine->source,
                HasSubstr(key + ": measured by `lastflop calibrate --device cpu:0`, 20"));
  }
}

TEST(CalibrateTest, RefusesToReplaceAFileUnlessForced) {
  const TestFolder folder;
  const std::string file = folder.Write("host.yaml", "mine");
  const auto content = [&file] {
    std::ifstream in(file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  };
  Program refused(folder.path(), "lastflop", {"calibrate", "--device", "cpu:0", "--out", file});
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(refused.Err(), HasSubstr("is there already; --force replaces it"));
  EXPECT_EQ(content(), "mine");
  Program forced(folder.path(), "lastflop",
                 {"calibrate", "--device", "cpu:0", "--ranks", "1", "--out", file, "--force"});
  ASSERT_EQ(forced.Wait(std::chrono::seconds(120)), 0) << forced.Err();
  EXPECT_THAT(content(), HasSubstr("schema: 1"));
  EXPECT_THAT(content(), ::testing::Not(HasSubstr("collective_latency_us")));
}

TEST(CalibrateTest, NamesTheDevicesOfThisHost) {
  const TestFolder folder;
  Program program(folder.path(), "lastflop", {"calibrate", "--device", "cuda:99"});
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_THAT(program.Err(), HasSubstr("--device cuda:99: this host has"));
}

}  // namespace
}  // namespace lastflop
