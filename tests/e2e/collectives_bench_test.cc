// `lastflop collectives bench` on the CPU: real processes, two to four ranks.
#include <nlohmann/json.hpp>
#include <string>

#include "gtest/gtest.h"
#include "tests/e2e/program.h"

namespace lastflop {
namespace {

nlohmann::json BenchOf(const std::vector<std::string>& flags) {
  const TestFolder folder;
  std::vector<std::string> arguments = {"collectives", "bench", "--device", "cpu", "-o", "json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  Program program(folder.path(), "lastflop", arguments);
  EXPECT_EQ(program.Wait(), 0) << program.Err();
  return nlohmann::json::parse(program.Out(), nullptr, false);
}

TEST(CollectivesBenchTest, MeasuresBothChainsOfEveryAlgorithmOnTwoToFourRanks) {
  for (const std::string ranks : {"2", "3", "4"}) {
    const auto document = BenchOf({"--ranks", ranks, "--bytes", "4,20,14336", "--algorithms",
                                   "auto,one_shot,two_shot,ring", "--operations", "all_reduce"});
    ASSERT_TRUE(document.contains("rows"));
    EXPECT_EQ(document["rows"].size(), 3u * 4u * 2u);
    for (const auto& row : document["rows"]) {
      EXPECT_EQ(row["operation"], "all_reduce");
      EXPECT_EQ(std::to_string(row["ranks"].get<int>()), ranks);
      EXPECT_GT(row["us"].get<double>(), 0);
      EXPECT_GE(row["wait_us"].get<double>(), 0);
      EXPECT_GE(row["noise"].get<double>(), 0);
      EXPECT_TRUE(row["correct"].get<bool>()) << row.dump();
      EXPECT_NE(row["algorithm"], "auto");
    }
  }
}

TEST(CollectivesBenchTest, MeasuresDispatchAndCombineOfWholeRows) {
  for (const std::string ranks : {"2", "3"}) {
    const auto document =
        BenchOf({"--ranks", ranks, "--bytes", "4,20000,28672", "--operations", "all_to_all"});
    ASSERT_TRUE(document.contains("rows"));
    ASSERT_EQ(document["rows"].size(), 2u * 2u);
    for (const auto& row : document["rows"]) {
      EXPECT_EQ(row["operation"].get<std::string>().find("all_to_all_"), 0u);
      EXPECT_EQ(row["algorithm"], "p2p");
      EXPECT_EQ(row["chain"], "independent");
      EXPECT_EQ(row["bytes"].get<int>() % 14336, 0);
      EXPECT_GT(row["us"].get<double>(), 0);
      EXPECT_TRUE(row["correct"].get<bool>()) << row.dump();
    }
    EXPECT_EQ(document["skipped"].size(), 2u * 2u);  // Dependent chains of them.
  }
}

TEST(CollectivesBenchTest, ListsWhatTheDeviceHasNot) {
  const auto document = BenchOf({"--bytes", "4", "--algorithms", "nccl,one_shot"});
  ASSERT_TRUE(document.contains("skipped"));
  ASSERT_EQ(document["skipped"].size(), 2u);
  EXPECT_NE(document["skipped"][0]["reason"].get<std::string>().find("no NCCL"), std::string::npos);
  EXPECT_EQ(document["rows"].size(), 2u);
}

TEST(CollectivesBenchTest, RefusesOddSizes) {
  const TestFolder folder;
  Program program(folder.path(), "lastflop",
                  {"collectives", "bench", "--device", "cpu", "--bytes", "5"});
  EXPECT_EQ(program.Wait(), 2);
  EXPECT_NE(program.Err().find("2 bytes each"), std::string::npos) << program.Err();
}

}  // namespace
}  // namespace lastflop
