#include "spec/campaign_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/campaign_json.h"
#include "common/expand_trials.h"
#include "tests/spec/campaign_fixture.h"

namespace lastflop {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(CampaignReaderTest, ReadsEverySection) {
  const absl::StatusOr<Campaign> read = ReadText(kGoodCampaign);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name, "no");
  EXPECT_EQ(read->layers_kept, 2);
  EXPECT_EQ(read->model.num_experts, 384);
  EXPECT_TRUE(read->machine_auto);
  EXPECT_EQ(read->baseline.parallel.tensor, 8);
  EXPECT_EQ(read->baseline.moe.weights, WeightFormat::kInt4G32);
  EXPECT_EQ(read->baseline.collectives.all_reduce, AllReduceAlgorithm::kNccl);
  EXPECT_EQ(read->baseline.launch.graph, GraphMode::kFull);
  ASSERT_EQ(read->points.size(), 3u);
  EXPECT_EQ(read->points[1].Label(), "decode b64 c4096");
  EXPECT_EQ(read->points[1].routing.distribution, Distribution::kZipf);
  EXPECT_EQ(read->points[1].routing.seed, 7u);
  EXPECT_EQ(read->points[2].routing.distribution, Distribution::kUniform);
  EXPECT_EQ(read->measure.half_width, 0.005);
  EXPECT_EQ(read->measure.max_time, std::chrono::seconds(3));
  EXPECT_EQ(read->budget.effort_hours, 120);
  EXPECT_EQ(read->budget.wall, std::chrono::minutes(6));
  EXPECT_EQ(read->economics.gpu_hours, 50000);
}

TEST(CampaignReaderTest, TellsPointsApartByTheirRoutingWhereNothingElseDoes) {
  const auto labels = [](const std::string& third) -> std::vector<std::string> {
    const absl::StatusOr<Campaign> read =
        ReadText(Changed("{phase: prefill, batch: 2, context: 512, time_share: 0.3, routing: "
                         "{distribution: uniform}}",
                         third));
    std::vector<std::string> found;
    EXPECT_TRUE(read.ok()) << read.status();
    for (const Point& point : read.ok() ? read->points : std::vector<Point>()) {
      found.push_back(point.Label());
    }
    return found;
  };
  EXPECT_THAT(
      labels("{batch: 64, context: 4096, time_share: 0.3, routing: {exponent: 1.5}}"),
      ElementsAre("decode b1 c4096", "decode b64 c4096 zipf 1", "decode b64 c4096 zipf 1.5"));
  EXPECT_THAT(labels("{batch: 64, context: 4096, time_share: 0.3, routing: {seed: 8}}"),
              ElementsAre("decode b1 c4096", "decode b64 c4096 zipf 1 seed 7",
                          "decode b64 c4096 zipf 1 seed 8"));
}

// kGoodCampaign with interventions of which each needs the one before it.
std::string Chain(int length) {
  const std::string text = kGoodCampaign;
  std::string chain = text.substr(0, text.find("  - id: expert-parallel"));
  for (int i = 0; i < length; ++i) {
    absl::StrAppend(&chain, "  - {id: i", i, ", effort: 1h, set: {moe.tile_order: ",
                    i % 2 == 0 ? "row_major" : "column_major", "}");
    absl::StrAppend(&chain, i == 0 ? "" : absl::StrCat(", needs: [i", i - 1, "]"), "}\n");
  }
  return chain;
}

// The time to read one grew with the fourth power of its length: 800 took minutes.
TEST(CampaignReaderTest, BoundsWhatIsNeededAtOnce) {
  const absl::StatusOr<Campaign> read = ReadText(Chain(65));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->interventions.size(), 65u);
  EXPECT_THAT(
      RefusalOf(Chain(2000)),
      HasSubstr("\"i65\" needs 65 others, theirs included; at most 64 are applied together"));
  EXPECT_THAT(RefusalOf(Chain(2001)), HasSubstr("has 2001 interventions; at most 2000 are read"));
}

TEST(CampaignReaderTest, RefusesTheSamePointTwice) {
  const absl::StatusOr<Campaign> read = ReadText(Changed(
      "{phase: prefill, batch: 2, context: 512, time_share: 0.3, routing: {distribution: uniform}}",
      "{batch: 64, context: 4096, time_share: 0.3}"));
  ASSERT_FALSE(read.ok());
  EXPECT_THAT(std::string(read.status().message()),
              HasSubstr("workload.points[2]: is the same as workload.points[1]"));
}

TEST(CampaignReaderTest, ReadsInterventions) {
  const absl::StatusOr<Campaign> read = ReadText(kGoodCampaign);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->interventions.size(), 2u);
  const Intervention& first = read->interventions[0];
  EXPECT_EQ(first.effort.likely_hours, 16);
  EXPECT_EQ(first.claim->low, 1.2);
  EXPECT_EQ(first.claim->high, 1.5);
  EXPECT_EQ(first.claim->batch_low, 64);
  EXPECT_EQ(first.claim->batch_high, std::nullopt);
  EXPECT_EQ(first.prior->result, "+2%");
  EXPECT_THAT(first.excludes, ElementsAre("fused"));
  EXPECT_EQ(first.set[0].path, "parallel.expert");
  EXPECT_THAT(first.try_values[0].second, ElementsAre("row_major", "column_major"));
  const Intervention& second = read->interventions[1];
  EXPECT_EQ(second.title, "fused");
  EXPECT_EQ(second.effort.low_hours, 0.5);
  EXPECT_EQ(second.effort.high_hours, 24);
  EXPECT_EQ(second.claim->high, std::nullopt);
  EXPECT_EQ(ExpandTrials(*read)->size(), 3u + 2 * 3 + 3);
}

TEST(CampaignReaderTest, TheResultTravelsWhole) {
  const absl::StatusOr<Campaign> read = ReadText(kGoodCampaign);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*CampaignFromJson(ToJson(*read))), ToJson(*read));
}

struct Refusal {
  const char* from;
  const char* to;
  const char* start;  // "c.yaml:LINE:COLUMN: path: "
  const char* rule;
};

void ExpectRefusals(const std::vector<Refusal>& cases) {
  for (const Refusal& c : cases) {
    const std::string message = RefusalOf(Changed(c.from, c.to));
    EXPECT_THAT(message, HasSubstr(c.start)) << c.to;
    EXPECT_THAT(message, HasSubstr(c.rule)) << c.to;
  }
}

TEST(CampaignReaderTest, SuggestsWhatAMistypedKeyWasMeantToBeAtAnyDepth) {
  ExpectRefusals({
      {"4096, time_share: 0.2", "4096, timeshare: 0.2",
       "c.yaml:15:", "workload.points[0].timeshare: unknown key; did you mean \"time_share\"?"},
      {"    set: {parallel.expert: 8}", "    setts: {parallel.expert: 8}",
       "c.yaml:33:5: interventions[0].setts: ", "did you mean \"set\"?"},
      {"budget: {effort", "budgte: {effort", "c.yaml:19:1: budgte: ", "\"budget\""},
      {"    risk: medium", "    risc: medium", "c.yaml:26:5: interventions[0].risc: ", "\"risk\""},
      {"    risk: medium", "    colour: red",
       "c.yaml:26:5: interventions[0].colour: ", "unknown key; known are id, title"},
      {"exponent: 1.0", "exponnent: 1.0", "c.yaml:13:", "\"exponent\""},
      {"batch: [64, null]", "batches: [64, null]", "c.yaml:29:", "claim.batches: unknown key"},
      {"tile_order: row_major}", "tile-order: row_major}",
       "c.yaml:8:45: baseline.moe.tile-order: ", "did you mean \"moe.tile_order\"?"},
      {"set: {moe: {kernel: fused}}", "set: {moe: {kernal: fused}}",
       "c.yaml:38:17: interventions[1].set.moe.kernal: ", "did you mean \"moe.kernel\"?"},
      {"kernel: grouped", "kernel: gruoped",
       "c.yaml:8:36: baseline.moe.kernel: ", "did you mean \"grouped\"?"},
      {"distribution: zipf", "distribution: zip",
       "c.yaml:13:27: workload.routing.distribution: ", "did you mean \"zipf\"?"},
  });
}

TEST(CampaignReaderTest, RefusesNumbersThatCouldMeanTwoThings) {
  // Batches are sizes: whole numbers from 1 on, written in one way.
  for (const char* text : {"0100", "08", "1_000", "1e3", "8.0", "0x10", "-1", "0", ".nan", ".inf",
                           "64.", "\"64\"", "[64]", "99999999999999999999"}) {
    EXPECT_THAT(RefusalOf(Changed("batch: 64", std::string("batch: ") + text)),
                StartsWith("c.yaml:16:30: workload.points[1].batch: "))
        << text;
  }
  ExpectRefusals({
      {"tensor: 8", "tensor: 010", "c.yaml:7:22: baseline.parallel.tensor: ", "leading zero"},
      {"tensor: 8", "tensor: '8'", "c.yaml:7:22: baseline.parallel.tensor: ", "quoted"},
      {"tensor: 8", "tensor: .inf", "c.yaml:7:22: baseline.parallel.tensor: ", "whole number"},
      {"0.5%", "0%", "c.yaml:18:51: measure.half_width: ", "> 0"},
      {"0.5%", ".nan", "c.yaml:18:51: measure.half_width: ", "finite"},
      {"max_time: 3s", "max_time: 3", "c.yaml:18:67: measure.max_time: ", "unit"},
      {"max_time: 3s", "max_time: 0s", "c.yaml:18:67: measure.max_time: ", "> 0"},
      {"max_time: 3s", "max_time: 3 parsecs", "c.yaml:18:67: measure.max_time: ", "250ms"},
      {"min_pairs: 30", "min_pairs: 0", "c.yaml:18:35: measure.min_pairs: ", "from 1"},
      {"launches: 3", "launches: 0", "c.yaml:18:21: measure.launches: ", "from 1"},
      {"confidence: 0.95", "confidence: 1", "c.yaml:18:83: measure.confidence: ", "<= 0.9999"},
      {"effort: 3w", "effort: 3y", "c.yaml:19:18: budget.effort: ", "3w (5 d a week)"},
      {"max_error: 0", "max_error: -0.1", "c.yaml:19:43: budget.max_error: ", ">= 0"},
      {"gpu_hours: 50000", "gpu_hours: 0", "c.yaml:20:24: economics.gpu_hours: ", "> 0"},
      {"gpu_hours: 50000", "gpu_hours: 1e308", "c.yaml:20:24: economics.gpu_hours: ", "<= 1e+12"},
      {"schema: 1", "schema: 2", "c.yaml:1:9: schema: ", "must be 1"},
  });
}

TEST(CampaignReaderTest, TakesExactlyWhatDurationsAndSharesSay) {
  const auto max_time = [](const std::string& text) {
    return ReadText(Changed("max_time: 3s", "max_time: " + text))->measure.max_time;
  };
  EXPECT_EQ(max_time("250ms"), std::chrono::milliseconds(250));
  EXPECT_EQ(max_time("1.5h"), std::chrono::minutes(90));
  EXPECT_EQ(max_time("6m"), std::chrono::minutes(6));
  // H9: a target that cannot be met is no input error; the trial ends at max_time.
  EXPECT_DOUBLE_EQ(ReadText(Changed("0.5%", "0.0001%"))->measure.half_width, 1e-6);
}

TEST(CampaignReaderTest, HoldsTheSharesOfTimeToTheirSum) {
  ExpectRefusals({
      {"time_share: 0.3", "time_share: 0.2", "c.yaml:15:5: workload.points: ", "sums to 0.9"},
      {", time_share: 0.2}", "}", "c.yaml:15:5: workload.points: ", "stands at 2 of 3"},
      {"time_share: 0.3", "time_share: 30", "c.yaml:17:", "<= 1"},
  });
  EXPECT_EQ(RefusalOf(Changed("time_share: 0.3", "time_share: 30%")), "");
  std::string none = Changed(", time_share: 0.2}", "}");
  for (const char* share : {", time_share: 0.5", ", time_share: 0.3"}) {
    none.replace(none.find(share), std::string(share).size(), "");
  }
  const absl::StatusOr<Campaign> read = ReadText(none);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_DOUBLE_EQ(read->points[2].time_share, 1.0 / 3);
  EXPECT_THAT(read->warnings, ElementsAre(HasSubstr("count equally")));
}

TEST(CampaignReaderTest, RefusesClaimsThatCannotBeMeant) {
  ExpectRefusals({
      {"[1.2, 1.5]", "[1.5, 1.2]", "c.yaml:29:22: interventions[0].claim.speedup: ", "1.5 > 1.2"},
      {"[1.2, 1.5]", "0", "c.yaml:29:22: interventions[0].claim.speedup: ", "> 0"},
      {"[1.2, 1.5]", "[null, 1.5]", "c.yaml:29:22: interventions[0].claim.speedup: ", "low end"},
      {"[1.2, 1.5]", "+20%", "c.yaml:29:22: interventions[0].claim.speedup: ", "1.2 for +20%"},
      {"[1.2, 1.5]", "[1.2]", "c.yaml:29:22: interventions[0].claim.speedup: ", "[low, high]"},
      {"[64, null]", "[64, 8]", "c.yaml:29:51: interventions[0].claim.batch: ", "64 > 8"},
      {"[64, null]", "[0, 8]", "c.yaml:29:52: interventions[0].claim.batch[0]: ", ">= 1"},
      {"of: step", "of: steps", "c.yaml:29:38: interventions[0].claim.of: ", "\"step\""},
      {"op:moe.down", "op:moe.up",
       "c.yaml:37:31: interventions[1].claim.of: ", "no op is called \"moe.up\""},
      {", source: estimate", "", "c.yaml:29:12: interventions[0].claim.source: ", "missing"},
  });
  EXPECT_EQ(ReadText(Changed("[1.2, 1.5]", "[1.2, null]"))->interventions[0].claim->high,
            std::nullopt);
}

TEST(CampaignReaderTest, RefusesInterventionsAtOdds) {
  ExpectRefusals({
      {"id: fused", "id: expert-parallel",
       "c.yaml:35:9: interventions[1].id: ", "the first one is on line 22"},
      {"id: fused", "id: baseline", "c.yaml:35:9: interventions[1].id: ", "baseline's own"},
      {"id: fused", "id: \"=cmd()\"", "c.yaml:35:9: interventions[1].id: ", "letters, digits"},
      {"needs: []", "needs: [expert-parallel]",
       "c.yaml:31:12: interventions[0].needs: ", "names itself"},
      {"needs: []", "needs: [fuse]",
       "c.yaml:31:12: interventions[0].needs: ", "did you mean \"fused\"?"},
      {"excludes: [fused]", "excludes: [fuse]",
       "c.yaml:32:15: interventions[0].excludes: ", "did you mean \"fused\"?"},
      {"needs: []", "needs: [fused]", "c.yaml:22:5: interventions[0]: ", "excludes \"fused\""},
      {"effort: 2d", "effort: 0h", "c.yaml:25:13: interventions[0].effort: ", "> 0"},
      {"low: 30m", "low: 2h", "c.yaml:36:13: interventions[1].effort: ", "low <= likely <= high"},
      {"    set: {moe: {kernel: fused}}\n", "", "c.yaml:35:5: interventions[1].set: ", "missing"},
      {"[row_major, column_major]", "row_major",
       "c.yaml:34:27: interventions[0].try.moe.tile_order: ", "a list of values to try"},
      {"[row_major, column_major]", "[row_major, row_major]",
       "c.yaml:34:39: interventions[0].try.moe.tile_order[1]: ", "twice"},
      {"try: {moe.tile_order: [row_major, column_major]}", "try: {parallel.expert: [1, 2]}",
       "c.yaml:34:11: interventions[0].try.parallel.expert: ", "is set on line 33 too"},
      {"risk: medium", "risk: huge", "c.yaml:26:11: interventions[0].risk: ", "low, medium, high"},
  });
  std::string circle = Changed("needs: []\n    excludes: [fused]", "needs: [fused]");
  circle += "    needs: [expert-parallel]\n";
  EXPECT_THAT(RefusalOf(circle), HasSubstr("needs go in a circle"));
}

TEST(CampaignReaderTest, RefusesNeedsThatDisagreeAboutAField) {
  const std::string needs = std::string(kGoodCampaign) +
                            "  - {id: left, effort: 1h, set: {moe.group_m: 2}}\n"
                            "  - {id: right, effort: 1h, set: {moe.group_m: 4}}\n"
                            "  - {id: both, effort: 1h, set: {moe.kernel: fused}, needs: [left, "
                            "right]}\n";
  EXPECT_THAT(RefusalOf(needs),
              AllOf(HasSubstr("c.yaml:41:61: interventions[4].needs: "),
                    HasSubstr("\"left\" sets moe.group_m to 2 and \"right\" to 4")));
  // One that needs the other comes after it, and may say otherwise.
  std::string ordered = needs;
  ordered.replace(ordered.find("{moe.group_m: 4}"), 16, "{moe.group_m: 4}, needs: [left]");
  EXPECT_EQ(RefusalOf(ordered), "");
}

TEST(CampaignReaderTest, ReadsRounds) {
  EXPECT_EQ(ReadText(kGoodCampaign)->budget.rounds, 1);
  EXPECT_EQ(ReadText(Changed("max_error: 0", "max_error: 0, rounds: 3"))->budget.rounds, 3);
  ExpectRefusals({{"max_error: 0", "rounds: 0", "c.yaml:19:", "budget.rounds"}});
}

TEST(CampaignReaderTest, SaysEverythingThatIsWrongAtOnce) {
  std::string text = Changed("schema: 1", "schema: one");
  text.replace(text.find("batch: 64"), 9, "batch: -4");
  text.replace(text.find("kernel: fused"), 13, "kernel: fuzed");
  const std::vector<std::string> lines = absl::StrSplit(RefusalOf(text), '\n');
  EXPECT_THAT(lines, ElementsAre(StartsWith("c.yaml:1:9: schema: "),
                                 StartsWith("c.yaml:16:30: workload.points[1].batch: "),
                                 StartsWith("c.yaml:38:25: interventions[1].set.moe.kernel: ")));
}

TEST(CampaignReaderTest, RefusesWhatIsNoCampaign) {
  EXPECT_THAT(RefusalOf("- a\n- b\n"), StartsWith("c.yaml:1:1: (file): a list of 2 must be a map"));
  EXPECT_THAT(RefusalOf("just text\n"), StartsWith("c.yaml:1:1: (file): \"just text\" must be"));
  EXPECT_THAT(RefusalOf(""), StartsWith("c.yaml:1:1: (file): the file is empty"));
  EXPECT_THAT(RefusalOf("name: x\n"), AllOf(HasSubstr("c.yaml:1:1: schema: the key is missing"),
                                            HasSubstr("c.yaml:1:1: model: the key is missing"),
                                            HasSubstr("workload: the key is missing")));
  EXPECT_THAT(RefusalOf(Changed("  points:", "  points: []\n  pts:")),
              HasSubstr("workload.points: a list of 0 must be a list of at least one point"));
  EXPECT_EQ(ReadCampaignFile("no/such.yaml", {}, SmallHooks()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(CampaignReaderTest, NamesTheModelFileThatItCannotRead) {
  EXPECT_THAT(RefusalOf(Changed("models/small.json", "models/missing.json")),
              StartsWith("c.yaml:4:17: model.config: models/missing.json: cannot be opened"));
  EXPECT_THAT(RefusalOf(Changed("layers: 2", "layers: 3")),
              StartsWith("c.yaml:4:44: model.layers: 3 layers cannot be kept of the 2 MoE"));
  EXPECT_EQ(ReadText(Changed("layers: 2", "layers: all"))->layers_kept, 0);
  EXPECT_THAT(RefusalOf(Changed("layers: 2", "layers: some")), HasSubstr("or all"));
}

TEST(CampaignReaderTest, RefusesABaselineThatIsInfeasibleWithItsArithmetic) {
  EXPECT_EQ(RefusalOf(Changed("tensor: 8, expert: 1", "tensor: 8, expert: 5")),
            "c.yaml:7:25: baseline.parallel.expert: the baseline is infeasible: "
            "parallel.expert=5: 384 mod 5 = 4");
  // Everywhere too small for the data degree: nothing of it could run.
  EXPECT_THAT(RefusalOf(Changed("expert: 1}", "expert: 1, data: 100}")),
              HasSubstr("c.yaml:15:7: workload.points[0]: the baseline is infeasible: batch 1"));
}

TEST(CampaignReaderTest, KeepsInfeasibleCellsAndRunsTheOthers) {
  const std::string text =
      Changed("set: {parallel.expert: 8}\n    try: {moe.tile_order: [row_major, column_major]}",
              "try: {parallel.expert: [5, 8, 400]}");
  const absl::StatusOr<Campaign> read = ReadText(text);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->infeasible.size(), 2u);
  EXPECT_EQ(read->infeasible[0].choice, "parallel.expert=5");
  EXPECT_THAT(read->infeasible[0].reason, HasSubstr("384 mod 5 = 4"));
  EXPECT_EQ(read->infeasible[1].choice, "parallel.expert=400");
  EXPECT_EQ(read->interventions[0].infeasible_reason, "");
  int num_settled = 0;
  const auto trials = ExpandTrials(*read);
  for (const TrialSpec& trial : *trials) {
    num_settled += trial.settled.has_value() ? 1 : 0;
  }
  EXPECT_EQ(num_settled, 2 * 3);
  EXPECT_EQ(trials->size(), 3u + 3 * 3 + 3);
}

TEST(CampaignReaderTest, AnInterventionThatIsInfeasibleThroughoutSaysSo) {
  const absl::StatusOr<Campaign> read =
      ReadText(Changed("set: {parallel.expert: 8}", "set: {parallel.expert: 5}"));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->interventions[0].infeasible_reason, HasSubstr("384 mod 5 = 4"));
}

TEST(CampaignReaderTest, APointThatTheBaselineDoesNotFitIsKept) {
  const absl::StatusOr<Campaign> read = ReadText(Changed("expert: 1}", "expert: 1, data: 2}"));
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->infeasible.size(), 1u);
  EXPECT_EQ(read->infeasible[0].intervention_id, "baseline");
  EXPECT_EQ(read->infeasible[0].point_index, 0);
  EXPECT_THAT(read->warnings, ElementsAre(HasSubstr("workload.points[0]")));
}

TEST(CampaignReaderTest, ReadsRecordedRouting) {
  const std::filesystem::path directory =
      std::filesystem::path(::testing::TempDir()) / "campaign_reader_trace";
  std::filesystem::create_directories(directory);
  std::ofstream trace(directory / "counts.csv");
  trace << "layer,expert,count\n0,383,5\n0,0,2.5\n";
  trace.close();
  const std::string text =
      Changed("{distribution: zipf, exponent: 1.0, seed: 7}", "{trace: counts.csv, seed: 7}");
  const absl::StatusOr<Campaign> read = ReadText(text, {}, directory.string());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->points[0].routing.distribution, Distribution::kTrace);
  ASSERT_EQ(read->points[0].routing.trace_popularity[0].size(), 384u);
  EXPECT_EQ(read->points[0].routing.trace_popularity[0][383], 5);
  EXPECT_TRUE(read->points[2].routing.trace_popularity.empty());  // Its own is uniform.
  EXPECT_THAT(RefusalOf(text), HasSubstr("c.yaml:13:20: workload.routing.trace: counts.csv"));
  std::ofstream(directory / "counts.csv") << "layer,expert,count\n0,1,5\n";
  EXPECT_THAT(std::string(ReadText(text, {}, directory.string()).status().message()),
              HasSubstr("counts.csv has 1 layers of 2 experts; the model has 3 layers, 2 of them "
                        "MoE layers of 384"));
}

TEST(CampaignReaderTest, KeepsANameWhateverItHolds) {
  const absl::StatusOr<Campaign> read =
      ReadText(Changed("name: no", "name: \"=a<b>&\\\"c', d=1+1\\n</SCRIPT>\""));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->name, "=a<b>&\"c', d=1+1\n</SCRIPT>");
}

TEST(CampaignReaderTest, DamagedCampaignsAreRefusedOrReadButNeverCrash) {
  std::mt19937 random(11);
  const std::string bytes = "\n :{}[],&*!|>'\"#%-<x0~";
  int num_refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string text = kGoodCampaign;
    for (int edit = 0; edit < 1 + i % 4; ++edit) {
      const size_t at = random() % text.size();
      if (i % 3 == 0) {
        text.erase(at, random() % 40);  // Half a line is gone.
      } else {
        text[at] = bytes[random() % bytes.size()];
      }
    }
    const absl::StatusOr<Campaign> read = ReadText(text);
    num_refused += read.ok() ? 0 : 1;
    if (!read.ok()) {
      EXPECT_THAT(std::string(read.status().message()), StartsWith("c.yaml:"));
    }
  }
  EXPECT_GT(num_refused, 1000);
}

TEST(CampaignReaderTest, AnUnknownDistributionIsOneMistakeWhateverIsBesideIt) {
  const std::string refusal = RefusalOf(Changed("distribution: zipf", "distribution: ziff"));
  EXPECT_THAT(refusal, HasSubstr("did you mean \"zipf\"?"));
  EXPECT_THAT(refusal, Not(HasSubstr("has no effect")));
}

TEST(CampaignReaderTest, HoldsSpeculationToItsRanges) {
  const auto speculative = [](const std::string& values) {
    return Changed("set: {moe: {kernel: fused}}",
                   "set: {decode.speculative: {" + values + ", draft_cost: 0.1}}");
  };
  for (const char* acceptance : {"0", "1.0", "0.8"}) {
    EXPECT_EQ(RefusalOf(speculative(std::string("draft_tokens: 4, acceptance: ") + acceptance)), "")
        << acceptance;
  }
  for (const char* acceptance : {"1.2", "-0.1", ".nan"}) {
    EXPECT_THAT(RefusalOf(speculative(std::string("draft_tokens: 4, acceptance: ") + acceptance)),
                HasSubstr("interventions[1].set.decode.speculative.acceptance: "))
        << acceptance;
  }
  EXPECT_THAT(RefusalOf(speculative("draft_tokens: 4")),
              HasSubstr("draft_tokens: drafts need decode.speculative.acceptance beside them"));
  EXPECT_EQ(RefusalOf(Changed("set: {moe: {kernel: fused}}",
                              "set: {decode.speculative.draft_tokens: 2}\n"
                              "    try: {decode.speculative.acceptance: [0.5, 0.8]}")),
            "");
  EXPECT_THAT(RefusalOf(speculative("draft_tokens: 0, acceptance: 0.5")),
              HasSubstr("no effect without decode.speculative.draft_tokens"));
}

}  // namespace
}  // namespace lastflop
