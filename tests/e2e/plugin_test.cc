#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/program.h"
#include "tests/e2e/tiny_campaign.h"

namespace lastflop {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string PluginFlag(const std::string& name, const std::string& file) {
  return name + "=" + LASTFLOP_TEST_PLUGINS + "/" + file +
         (file.find('.') == std::string::npos ? ".so" : "");
}

// What becomes of an intervention that a plugin is.
struct Outcome {
  std::string standing;
  std::string reason;  // Part of it.
};

const std::map<std::string, Outcome>& Outcomes() {
  static const std::map<std::string, Outcome> outcomes = {
      {"crash", {"failed", "signal 11 (Segmentation fault), plugin:crash in run()"}},
      {"leave", {"failed", "exit code 7, plugin:leave in run()"}},
      {"hang", {"failed", "no return after 0.5 s, plugin:hang in run()"}},
      {"wrong", {"invalid", "moe.plugin in layer 0 disagrees with its reference"}},
      {"overrun", {"invalid", "wrote past the end of its output"}},
      {"abi", {"unsupported", "ABI version 2"}},
      {"no_entry", {"unsupported", "does not export lastflop_plugin_entry()"}},
      {"refuse", {"unsupported", "only 7168 is built"}},
      {"fail", {"failed", "out of luck"}}};
  return outcomes;
}

std::map<std::string, json> EntriesOf(const json& report) {
  std::map<std::string, json> by_id;
  for (const json& entry : report.at("ranking")) {
    by_id[entry.at("id").get<std::string>()] = entry;
  }
  return by_id;
}

TEST(PluginRunTest, GivesEveryPluginAnOutcomeOfItsOwn) {
  const TestFolder folder;
  std::string interventions =
      "\n  - {id: good, title: Good, tier: 2, effort: 1d, set: {moe.kernel: 'plugin:good'}}"
      "\n  - {id: absent, title: Absent, tier: 2, effort: 1d, set: {moe.kernel: 'plugin:absent'}}"
      "\n  - {id: columns, title: No plugin, tier: 2, effort: 1h, set: {moe.tile_order: "
      "column_major}}\n";
  std::vector<std::string> arguments = {"run",
                                        "",
                                        "--db",
                                        folder.path() + "/r.db",
                                        "-o",
                                        "json",
                                        "--plugin-timeout",
                                        "0.5",
                                        "--no-prune",
                                        "--plugin",
                                        PluginFlag("good", "moe_cpu")};
  for (const auto& [name, outcome] : Outcomes()) {
    absl::StrAppend(&interventions, "  - {id: ", name, ", title: ", name,
                    ", tier: 2, effort: 1d, set: {moe.kernel: 'plugin:", name, "'}}\n");
    arguments.insert(arguments.end(), {"--plugin", PluginFlag(name, "faulty_" + name)});
  }
  arguments[1] = WriteTinyCampaign(folder, interventions,
                                   "launches: 2, min_pairs: 4, max_time: 100ms, max_attempts: 1");
  Program run(folder.path(), "lastflop", arguments);
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json report = json::parse(run.Out());
  std::map<std::string, json> by_id = EntriesOf(report);
  EXPECT_EQ(by_id.at("good").at("standing"), "measured") << by_id.at("good").dump();
  EXPECT_GT(by_id.at("good").at("speedup").at("pairs").get<int>(), 0);
  EXPECT_EQ(by_id.at("columns").at("standing"), "measured") << by_id.at("columns").dump();
  EXPECT_EQ(by_id.at("absent").at("standing"), "unsupported");
  EXPECT_THAT(by_id.at("absent").at("reason").get<std::string>(),
              HasSubstr("--plugin absent=FILE"));
  for (const auto& [name, outcome] : Outcomes()) {
    EXPECT_EQ(by_id.at(name).at("standing"), outcome.standing) << by_id.at(name).dump();
    EXPECT_THAT(by_id.at(name).at("reason").get<std::string>(), HasSubstr(outcome.reason));
  }
  EXPECT_THAT(report.at("environment").at("plugin:good").get<std::string>(),
              HasSubstr("moe_cpu 1.0, file "));
}

TEST(PluginRunTest, RunsPythonInAProcessOfItsOwnOnEveryRank) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(
      folder,
      "\n  - {id: good, title: Good, tier: 2, effort: 1d, set: {moe.kernel: 'plugin:good'}}"
      "\n  - {id: hang, title: Hangs, tier: 2, effort: 1d, set: {moe.kernel: 'plugin:hang'}}"
      "\n  - {id: crash, title: Crashes, tier: 2, effort: 1d, set: {moe.kernel: 'plugin:crash'}}\n",
      "launches: 1, min_pairs: 4, max_time: 100ms, max_attempts: 1");
  Program run(
      folder.path(), "lastflop",
      {"run", file, "--db", folder.path() + "/r.db", "-o", "json", "--no-prune", "--set",
       "baseline.moe.weights=bf16", "--set", "baseline.parallel.tensor=2", "--plugin-timeout", "3",
       "--plugin", PluginFlag("good", "moe_python.py"), "--plugin",
       PluginFlag("hang", "faulty_hang.py"), "--plugin", PluginFlag("crash", "faulty_crash.py")});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json report = json::parse(run.Out());
  std::map<std::string, json> by_id = EntriesOf(report);
  EXPECT_EQ(by_id.at("good").at("standing"), "measured") << by_id.at("good").dump();
  EXPECT_LT(by_id.at("good").at("speedup").at("estimate").get<double>(), 1) << "plain Python";
  EXPECT_THAT(report.at("environment").at("plugin:good").get<std::string>(),
              HasSubstr("moe_python 1.0, Python 3."));
  EXPECT_EQ(by_id.at("hang").at("standing"), "failed");
  EXPECT_THAT(by_id.at("hang").at("reason").get<std::string>(),
              HasSubstr("no return after 3.0 s, plugin:hang in run()"));
  EXPECT_EQ(by_id.at("crash").at("standing"), "failed");
  EXPECT_THAT(by_id.at("crash").at("reason").get<std::string>(),
              HasSubstr("the Python process ended on signal 11"));
}

TEST(PluginRunTest, RefusesAFileThatIsNotThereBeforeAnythingRuns) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(folder, kTinyInterventions);
  Program run(folder.path(), "lastflop",
              {"run", file, "--db", folder.path() + "/r.db", "--plugin", "fast=/nowhere/fast.so"});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_THAT(run.Err(),
              HasSubstr("--plugin fast=/nowhere/fast.so: /nowhere/fast.so: no such file"));
}

}  // namespace
}  // namespace lastflop
