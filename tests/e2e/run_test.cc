#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/e2e/program.h"
#include "tests/e2e/tiny_campaign.h"

namespace lastflop {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const json* Find(const json& ranking, const std::string& id) {
  for (const json& entry : ranking) {
    if (entry.at("id") == id) {
      return &entry;
    }
  }
  return nullptr;
}

// live_report_schema_test holds these to report/report.schema.json.
void KeepForSchemaTest(const std::string& name, const std::string& text) {
  if (const char* folder = std::getenv("LASTFLOP_LIVE_REPORTS"); folder != nullptr) {
    std::ofstream(std::string(folder) + "/" + name) << text;
  }
}

TEST(RunTest, RanksRealKernelsAndCanBeReadAgain) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(folder, kTinyInterventions);
  const std::string db = folder.path() + "/r.db";
  Program run(folder.path(), "lastflop", {"run", file, "--db", db, "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json report = json::parse(run.Out());
  const json& ranking = report.at("ranking");
  ASSERT_EQ(ranking.size(), 4u);
  for (const char* id : {"fused", "columns", "separate"}) {
    const json* entry = Find(ranking, id);
    ASSERT_NE(entry, nullptr) << id;
    EXPECT_EQ(entry->at("standing"), "measured") << entry->dump();
    EXPECT_GT(entry->at("speedup").at("estimate").get<double>(), 0);
    EXPECT_GT(entry->at("speedup").at("pairs").get<int>(), 0);
  }
  const json* graphs = Find(ranking, "graphs");
  ASSERT_NE(graphs, nullptr);
  EXPECT_EQ(graphs->at("standing"), "unsupported");
  EXPECT_THAT(graphs->at("reason").get<std::string>(), HasSubstr("launch.graph"));
  EXPECT_TRUE(graphs->at("speedup").is_null() || graphs->at("speedup").at("estimate").is_null());
  EXPECT_FALSE(report.at("breakdown").empty());

  Program again(folder.path(), "lastflop", {"report", "--db", db, "-o", "json"});
  ASSERT_EQ(again.Wait(), 0) << again.Err();
  EXPECT_EQ(json::parse(again.Out()).at("ranking"), ranking);

  Program exported(folder.path(), "lastflop", {"export", "tiny", "--db", db});
  ASSERT_EQ(exported.Wait(), 0) << exported.Err();
  EXPECT_FALSE(json::parse(exported.Out()).at("trials").empty());
  KeepForSchemaTest("report.json", run.Out());
  KeepForSchemaTest("export.json", exported.Out());
}

// Round 1 accepts the fast kernel; round 2 compares the rest with that.
TEST(RunTest, RunsRoundsUponWhatWasAccepted) {
  const TestFolder folder;
  const std::string file =
      WriteTinyCampaign(folder,
                        "\n  - {id: grouped, title: A kernel that is not plain loops, tier: 1, "
                        "effort: 1h, set: {moe.kernel: grouped}}"
                        "\n  - {id: columns, title: Column-major tiles, tier: 2, effort: 1h, set: "
                        "{moe.tile_order: column_major}}"
                        "\n  - {id: fused, title: Another kernel, tier: 2, effort: 1h, set: "
                        "{moe.kernel: fused}, excludes: [grouped]}\n",
                        "launches: 4, min_pairs: 15, max_time: 300ms, confidence: 0.6");
  Program run(folder.path(), "lastflop",
              {"run", file, "--db", folder.path() + "/r.db", "--set",
               "baseline.moe.kernel=reference", "--set", "budget.rounds=2", "--set",
               "workload.points.0.batch=32", "--set", "workload.points.1.batch=64", "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json report = json::parse(run.Out());
  // Six times as fast or more, held against a confidence that a busy host reaches too.
  ASSERT_GE(report.at("rounds").size(), 2u) << report.at("rounds_note");
  const json& first = report.at("rounds").at(0);
  const std::string accepted = first.at("accepted").get<std::string>();
  EXPECT_TRUE(accepted == "grouped" || accepted == "fused") << accepted;
  EXPECT_FALSE(first.at("interventions").at(0).at("selected_on").at("estimate").is_null());
  EXPECT_FALSE(report.at("rounds").at(1).at("breakdown").empty());
  EXPECT_EQ(report.at("sequence").at(0).at("id"), accepted);
  EXPECT_FALSE(report.at("stack").at("speedup").at("estimate").is_null());
  bool has_dropped = false;
  for (const json& one : report.at("rounds").at(1).at("interventions")) {
    has_dropped |= one.at("reason").get<std::string>().find("dropped out") == 0;
  }
  EXPECT_TRUE(has_dropped) << "grouped and fused exclude each other";
}

TEST(RunTest, RunsAGangOfTwoRanks) {
  const TestFolder folder;
  const std::string file =
      WriteTinyCampaign(folder,
                        "\n  - {id: experts, title: Whole experts, tier: 1, effort: 1h, "
                        "set: {parallel.expert: 2}}\n");
  Program run(folder.path(), "lastflop",
              {"run", file, "--db", folder.path() + "/r.db", "--set", "baseline.parallel.tensor=2",
               "--no-prune", "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json report = json::parse(run.Out());
  EXPECT_EQ(report.at("ranking").at(0).at("standing"), "measured") << report.at("ranking").dump(1);
}

// Stages in processes of their own, with an output that the baseline's ranks agree with.
TEST(RunTest, RunsPipelinesOfTwoStages) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(
      folder,
      "\n  - {id: stages, title: Two stages, tier: 1, effort: 1h, "
      "set: {parallel.tensor: 1, parallel.pipeline: 2}}"
      "\n  - {id: micro, title: And micro-batches, tier: 1, effort: 1h, "
      "set: {parallel.tensor: 1, parallel.pipeline: 2, parallel.micro_batches: 2}}\n");
  Program run(folder.path(), "lastflop",
              {"run", file, "--db", folder.path() + "/r.db", "--set", "baseline.parallel.tensor=2",
               "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json report = json::parse(run.Out());
  const json* stages = Find(report.at("ranking"), "stages");
  ASSERT_NE(stages, nullptr);
  EXPECT_EQ(stages->at("standing"), "measured") << stages->dump(1);
  // Of the same weights and inputs as two slices; a stage that missed its input would be off by 1.
  EXPECT_GT(stages->at("error").get<double>(), 0);
  EXPECT_LT(stages->at("error").get<double>(), 0.05);
  const json* micro = Find(report.at("ranking"), "micro");
  ASSERT_NE(micro, nullptr);
  const json& points = micro->at("points");
  EXPECT_EQ(points.at(0).at("standing"), "infeasible") << points.dump(1);
  EXPECT_THAT(points.at(0).at("reason").get<std::string>(), HasSubstr("micro_batches=2 of 1"));
  EXPECT_EQ(points.at(1).at("standing"), "measured") << points.dump(1);
}

TEST(RunTest, RefusesABadFileWithItsLineBeforeAnythingIsStored) {
  const TestFolder folder;
  std::string file = WriteTinyCampaign(
      folder, "\n  - {id: a, title: A, tier: 1, effort: 1h, setts: {moe.kernel: fused}}\n");
  const std::string db = folder.path() + "/r.db";
  Program run(folder.path(), "lastflop", {"run", file, "--db", db});
  EXPECT_EQ(run.Wait(), 2);
  EXPECT_THAT(run.Err(), HasSubstr(file + ":17:"));
  EXPECT_THAT(run.Err(), HasSubstr("setts"));
  EXPECT_FALSE(std::ifstream(db).good()) << "a database was made";
}

TEST(RunTest, RefusesWhatAPredictionHasNoUseFor) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(folder, kTinyInterventions);
  const std::string db = folder.path() + "/r.db";
  for (const auto& given :
       std::vector<std::vector<std::string>>{{"--db", db},
                                             {"--workers", "2"},
                                             {"--plugin", "mine=/x.so"},
                                             {"--plugin-timeout", "5", "--plugin", "mine=/x.so"},
                                             {"--verbose"}}) {
    std::vector<std::string> arguments = {"run", file, "--fidelity", "predicted"};
    arguments.insert(arguments.end(), given.begin(), given.end());
    Program run(folder.path(), "lastflop", arguments);
    EXPECT_EQ(run.Wait(), 2) << given[0];
    EXPECT_THAT(run.Err(), HasSubstr(given[0] + " would have no effect"));
  }
  EXPECT_FALSE(std::ifstream(db).good()) << "a database was made";
}

TEST(RunTest, GoesOnAfterAnInterrupt) {
  const TestFolder folder;
  const std::string file =
      WriteTinyCampaign(folder, kTinyInterventions, "launches: 3, min_pairs: 30, max_time: 3s");
  const std::string db = folder.path() + "/r.db";
  Program run(folder.path(), "lastflop", {"run", file, "--db", db});
  ASSERT_TRUE(run.WaitForErr("trials")) << run.Err();
  run.SignalGroup(SIGINT);
  EXPECT_EQ(run.Wait(), 130) << run.Err();
  EXPECT_THAT(run.Err(), HasSubstr("lastflop resume"));
  Program listed(folder.path(), "lastflop", {"list", "--db", db, "-o", "csv"});
  ASSERT_EQ(listed.Wait(), 0) << listed.Err();
  EXPECT_THAT(listed.Out(), HasSubstr(",tiny,cancelled,"));
  const std::string cancelled = folder.path() + "/cancelled.db";
  std::filesystem::copy_file(db, cancelled);
  Program resumed(folder.path(), "lastflop", {"resume", "--db", db, "-o", "json"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.Err();
  EXPECT_EQ(Find(json::parse(resumed.Out()).at("ranking"), "fused")->at("standing"), "measured");

  Program compared(folder.path(), "lastflop", {"compare", db, cancelled});
  EXPECT_EQ(compared.Wait(), 3) << "what is not there is no proof";
  EXPECT_THAT(compared.Err(), HasSubstr("B is unfinished (cancelled): "));
}

TEST(RunTest, LeavesACampaignThatReadersCallAbandonedWhenAllOfItIsKilled) {
  const TestFolder folder;
  const std::string file =
      WriteTinyCampaign(folder, kTinyInterventions, "launches: 3, min_pairs: 30, max_time: 3s");
  const std::string db = folder.path() + "/r.db";
  Program run(folder.path(), "lastflop", {"run", file, "--db", db});
  ASSERT_TRUE(run.WaitForErr("trials")) << run.Err();
  Program during(folder.path(), "lastflop", {"list", "--db", db});
  ASSERT_EQ(during.Wait(), 0) << during.Err();
  EXPECT_EQ(during.Err(), "") << "its coordinator is there";
  for (const pid_t child : ChildrenOf(run.pid())) {
    kill(child, SIGKILL);
  }
  run.Signal(SIGKILL);
  run.Wait();
  for (const char* verb : {"list", "show", "report", "export"}) {
    Program reader(folder.path(), "lastflop", {verb, "--db", db});
    ASSERT_EQ(reader.Wait(), 0) << reader.Err();
    EXPECT_THAT(reader.Err(), HasSubstr("no coordinator has " + db)) << verb;
    EXPECT_THAT(reader.Err(), HasSubstr("lastflop resume c")) << verb;
  }
}

TEST(RunTest, EndsUnfinishedAndSaysHowToGoOnWhenItsWorkerIsKilled) {
  const TestFolder folder;
  const std::string file =
      WriteTinyCampaign(folder, kTinyInterventions, "launches: 1, min_pairs: 30, max_time: 1s");
  const std::string db = folder.path() + "/r.db";
  Program run(folder.path(), "lastflop", {"run", file, "--db", db});
  ASSERT_TRUE(run.WaitForErr("trials")) << run.Err();
  for (const pid_t child : ChildrenOf(run.pid())) {
    if (ProgramOf(child) == "lastflop-worker") {
      kill(child, SIGKILL);
    }
  }
  EXPECT_EQ(run.Wait(), 3) << run.Err();
  EXPECT_THAT(run.Err(), HasSubstr("signal 9"));
  EXPECT_THAT(run.Err(), HasSubstr("lastflop resume"));
  Program resumed(folder.path(), "lastflop", {"resume", "--db", db, "-o", "json"});
  ASSERT_EQ(resumed.Wait(), 0) << resumed.Err();
  EXPECT_EQ(Find(json::parse(resumed.Out()).at("ranking"), "fused")->at("standing"), "measured");
}

TEST(RunTest, WaitsForNoWorkersBeyondItsOwn) {
  const TestFolder folder;
  const std::string file = WriteTinyCampaign(
      folder,
      "\n  - {id: other, title: An engine, tier: 1, effort: 1h, set: {engine: {command: \"true\", "
      "result: /us}}}\n");
  const auto begin = std::chrono::steady_clock::now();
  Program run(folder.path(), "lastflop",
              {"run", file, "--db", folder.path() + "/r.db", "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  EXPECT_EQ(json::parse(run.Out()).at("ranking").at(0).at("standing"), "unsupported") << run.Out();
  // The grace for workers that might still come is 30 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(25));
}

TEST(RunTest, CallsWhatChangesTheOutputLossyAndRefusesToCallItExact) {
  const TestFolder folder;
  const std::string unsaid =
      "\n  - {id: few, title: Fewer experts, tier: 3, effort: 1h, "
      "set: {moe.expert_activation: {opportunistic: {keep: 1}}}";
  std::string file = WriteTinyCampaign(folder, unsaid + "}\n");
  Program run(folder.path(), "lastflop",
              {"run", file, "--db", folder.path() + "/r.db", "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json one = json::parse(run.Out()).at("ranking").at(0);
  EXPECT_EQ(one.at("quality"), "lossy");
  EXPECT_GT(one.at("error").get<double>(), 0.01);
  EXPECT_TRUE(one.at("place").is_null()) << "it ranks apart";

  file = WriteTinyCampaign(folder, unsaid + ", quality: exact}\n");
  Program refused(folder.path(), "lastflop", {"validate", file});
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(refused.Err(), HasSubstr("tiny.yaml:17:"));
  EXPECT_THAT(refused.Err(), HasSubstr("interventions[0].quality: exact, but the patch changes"));
}

// What the README's report says of them.
TEST(RunTest, TheQuickStartsGraphsAndPinAreNotMeasuredHere) {
  const TestFolder folder;
  Program run(folder.path(), "lastflop",
              {"run", "experiments/quickstart.yaml", "--db", folder.path() + "/q.db", "--set",
               "model.layers=1", "--set",
               "workload.points=[{phase: decode, batch: 1, context: 16, time_share: 1}]", "--set",
               "measure.launches=1", "--set", "measure.min_pairs=2", "--set",
               "measure.max_time=100ms", "-o", "json"});
  ASSERT_EQ(run.Wait(), 0) << run.Err();
  const json report = json::parse(run.Out());
  const json* pin = Find(report.at("ranking"), "l2-pinning");
  ASSERT_NE(pin, nullptr);
  EXPECT_EQ(pin->at("standing"), "unsupported") << pin->dump();
  EXPECT_THAT(pin->at("reason").get<std::string>(), HasSubstr("moe.l2_pin"));
  const json* graphs = Find(report.at("ranking"), "piecewise-graphs");
  ASSERT_NE(graphs, nullptr);
  // Pruned by its ceiling, unless a busy host's breakdown is of another step than the timed one:
  // that settles nothing, and the worker is asked.
  EXPECT_THAT(graphs->at("standing").get<std::string>(), testing::AnyOf("pruned", "unsupported"));
  EXPECT_LT(graphs->at("ceiling").get<double>(), 1.01) << graphs->dump();
}

TEST(KernelsTest, BenchTimesTheExpertsOfAModel) {
  const TestFolder folder;
  const std::string model =
      folder.Write("tiny.yaml",
                   "schema: 1\nname: tiny\nhidden_size: 64\nvocab_size: 251\nnum_layers: 2\n"
                   "num_experts: 8\ntop_k: 2\nmoe_intermediate_size: 64\n"
                   "attention: {kind: gqa, num_heads: 4, num_kv_heads: 2, head_dim: 16}\n"
                   "router: {scoring: softmax, renormalize: true}\n"
                   "formats: {experts: int4_g32}\n");
  Program bench(folder.path(), "lastflop",
                {"kernels", "bench", "--model", model, "--tensor", "2", "--weights", "bf16",
                 "--batch", "1,5", "--samples", "2", "--device", "cpu:0", "-o", "json"});
  ASSERT_EQ(bench.Wait(), 0) << bench.Err();
  const json rows = json::parse(bench.Out()).at("rows");
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    EXPECT_EQ(row.at("reason"), "") << row.dump();
    EXPECT_GT(row.at("us").get<double>(), 0);
    EXPECT_GT(row.at("unique_experts").get<double>(), 0);
    EXPECT_LT(row.at("error").get<double>(), 0.02);
  }

  Program refused(folder.path(), "lastflop",
                  {"kernels", "bench", "--model", model, "--expert", "7"});
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(refused.Err(), HasSubstr("mod 7"));
}

TEST(ProgramsTest, SayWhenWhatTheyPrintDoesNotArrive) {
  const char* folder = std::getenv("LASTFLOP_BIN_DIR");
  ASSERT_NE(folder, nullptr);
  for (const char* arguments : {"--version", "--help", "kernels -o csv"}) {
    const std::string command =
        std::string(folder) + "/lastflop " + arguments + " > /dev/full 2> /dev/null";
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 5) << arguments;
  }
}

TEST(ProgramsTest, SayWhatIsWrongWithTheirArguments) {
  const TestFolder folder;
  Program unknown(folder.path(), "lastflop", {"rnu"});
  EXPECT_EQ(unknown.Wait(), 2);
  EXPECT_THAT(unknown.Err(), HasSubstr("no verb 'rnu'; did you mean \"run\"?"));
  Program nobody(folder.path(), "lastflop",
                 {"list", "--server", "unix:" + folder.path() + "/nobody"});
  EXPECT_EQ(nobody.Wait(), 4) << nobody.Err();
  Program missing(folder.path(), "lastflop", {"validate", folder.path() + "/missing.yaml"});
  EXPECT_EQ(missing.Wait(), 2);
  EXPECT_THAT(missing.Err(), HasSubstr("missing.yaml: cannot be opened"));
  const std::string lastflop =
      std::filesystem::absolute(std::getenv("LASTFLOP_BIN_DIR")).string() + "/lastflop";
  const std::string no_source = "cd " + folder.path() + " && " + lastflop + " report 2> no_source";
  EXPECT_EQ(WEXITSTATUS(std::system(no_source.c_str())), 2);
  Program worker(folder.path(), "lastflop-worker", {"--server", "unix:/nowhere", "--device", "x"});
  EXPECT_EQ(worker.Wait(), 2);
  Program no_gpu(folder.path(), "lastflop-worker", {"--server", "unix:/no", "--device", "cuda:99"});
  EXPECT_EQ(no_gpu.Wait(), 2) << no_gpu.Err();
  const std::string file = WriteTinyCampaign(folder, kTinyInterventions);
  const std::string rows = folder.Write(
      "rows.csv", "system,source,kernel,gpus,bytes,latency_us\nh200_sxm,bench,NCCL,8,1024,9.5\n");
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"report", "--db", folder.path()},
           {"list", "--db", file},
           {"list", "--db", ""},
           {"validate", "/dev/zero"},  // Read up to a bound.
           {"import", "/dev/zero"},
           {"import", rows, "--into", rows},
           {"import", rows, "--into", "/proc/x.csv"},
           {"run", file, "--db", folder.path()},
           {"run", file, "--db", file},
           {"run", file, "--db", folder.path() + "/x.db", "--fidelity", "shard"},
           {"run", file, "--workers", "1", "--set", "baseline.parallel.tensor=2", "--db",
            folder.path() + "/x.db"}}) {
    Program wrong(folder.path(), "lastflop", arguments);
    EXPECT_EQ(wrong.Wait(), 2) << arguments[0] << ": " << wrong.Err();
    EXPECT_FALSE(wrong.Err().empty());
  }
}

}  // namespace
}  // namespace lastflop
