#include "spec/plan_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "spec/yaml_parser.h"

namespace lastflop {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The plan that a map of fields makes of `base`, or the first error.
absl::StatusOr<Plan> Apply(const std::string& yaml, const Plan& base = {}) {
  Diagnostics diagnostics("p.yaml");
  const YamlValue root = ParseYaml(yaml, diagnostics);
  Plan plan = base;
  for (const SettingSource& source : ReadPlanSettings(root, "set", base, diagnostics)) {
    const absl::Status status = SetPlanField(source.setting.path, source.setting.value, plan);
    EXPECT_TRUE(status.ok()) << status;
  }
  if (!diagnostics.ok()) {
    return diagnostics.ToStatus();
  }
  return plan;
}

std::string Refused(const std::string& yaml) { return std::string(Apply(yaml).status().message()); }

TEST(PlanReaderTest, NestedDottedAndMixedMapsSayTheSame) {
  const absl::StatusOr<Plan> nested = Apply("moe: {kernel: fused, tile_order: column_major}\n");
  ASSERT_TRUE(nested.ok()) << nested.status();
  EXPECT_EQ(nested->moe.kernel, MoeKernel::kFused);
  EXPECT_EQ(*nested, *Apply("moe.kernel: fused\nmoe.tile_order: column_major\n"));
  EXPECT_EQ(*nested, *Apply("moe: {kernel: fused}\nmoe.tile_order: column_major\n"));
}

TEST(PlanReaderTest, ReadsEveryCompositeValueOfThePlan) {
  const absl::StatusOr<Plan> plan = Apply(R"yaml(
moe:
  l2_pin: {share: 0.75, select: random}
  expert_activation: {opportunistic: {keep: 4}}
  kernel: plugin:marlin-like
overlap: {single_batch: {sms: 32}}
collectives:
  nccl: {algorithm: tree, protocol: ll, channels: 8}
  fuse_norm: true
attention.cache: fp8
decode.speculative: {draft_tokens: 4, acceptance: 0.8, draft_cost: 0.1}
process.env: {NCCL_NTHREADS: 512, TEXT: "a=b"}
engine: {command: "serve --bench", result: /tokens_per_s}
)yaml");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->moe.l2_pin, (L2Pin{.share = 0.75, .select = PinSelect::kRandom}));
  EXPECT_EQ(plan->moe.opportunistic_keep, 4);
  EXPECT_EQ(plan->moe.plugin, "marlin-like");
  EXPECT_EQ(plan->overlap, Overlap::kSingleBatch);
  EXPECT_EQ(plan->overlap_sms, 32);
  EXPECT_EQ(plan->collectives.nccl,
            (NcclTuning{.algorithm = "tree", .protocol = "ll", .channels = 8}));
  EXPECT_TRUE(plan->collectives.fuse_norm);
  EXPECT_EQ(plan->attention_cache, CacheFormat::kFp8);
  EXPECT_EQ(plan->speculative.draft_tokens, 4);
  EXPECT_EQ(plan->process_env.at("NCCL_NTHREADS"), "512");
  EXPECT_EQ(plan->engine_result, "/tokens_per_s");
  EXPECT_TRUE(CheckNothingIdle(*plan).ok());
}

TEST(PlanReaderTest, SwitchesOffWithNone) {
  Plan base;
  base.moe.l2_pin = L2Pin{.share = 0.5, .select = PinSelect::kRandom};
  base.speculative = {.draft_tokens = 4, .acceptance = 0.5, .draft_cost = 0.1};
  base.overlap = Overlap::kTwoBatch;
  const absl::StatusOr<Plan> plan = Apply(
      "moe: {l2_pin: none, expert_activation: top_k}\ndecode.speculative: none\noverlap: none\n",
      base);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(*plan, Plan{});
}

TEST(PlanReaderTest, EnvironmentIsMergedOntoTheBaselines) {
  Plan base;
  base.process_env = {{"A", "1"}, {"B", "2"}};
  const absl::StatusOr<Plan> plan = Apply("process.env: {B: 3, A: null, C: x}\n", base);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->process_env, (std::map<std::string, std::string>{{"B", "3"}, {"C", "x"}}));
}

TEST(PlanReaderTest, EveryFieldCanBeWrittenByItsPath) {
  for (const PlanField& field : PlanFields()) {
    if (field.path == "process.env") {
      continue;  // A map in YAML.
    }
    const std::string value = field.get(Plan{});
    const std::string yaml = absl::StrCat(field.path, ": ", value.empty() ? "\"\"" : value, "\n");
    const absl::StatusOr<Plan> plan = Apply(yaml);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(*plan, Plan{}) << yaml;
  }
}

TEST(PlanReaderTest, RefusesWhatIsNoPlan) {
  struct Case {
    const char* yaml;
    const char* start;
    const char* rule;
  };
  for (const Case& c : std::vector<Case>{
           {"moe: {kernel: fused}\nmoe.kernel: grouped\n",
            "p.yaml:2:1: set.moe.kernel: ", "set twice; the first one is on line 1"},
           {"overlap: none\noverlap.single_batch.sms: 3\n", "p.yaml:2:1: ", "set twice"},
           {"mo: {kernel: fused}\n", "p.yaml:1:1: set.mo: ", "did you mean"},
           {"moe: fused\n", "p.yaml:1:6: set.moe: ", "a map of plan fields"},
           {"moe: {}\n", "p.yaml:1:6: set.moe: ", "a map of plan fields, at least one"},
           {"moe: {l2_pin: {shares: 0.5}}\n",
            "p.yaml:1:16: set.moe.l2_pin.shares: ", "moe.l2_pin.share"},
           {"moe: {l2_pin: 0.5}\n", "p.yaml:1:15: set.moe.l2_pin: ", "or none"},
           {"moe.kernel: [fused]\n", "p.yaml:1:13: set.moe.kernel: ", "a list of 1 must be"},
           {"moe.kernel: {a: b}\n", "p.yaml:1:13: set.moe.kernel: ", "a map must be"},
           {"moe.kernel:\n", "p.yaml:1:", "no value"},
           {"moe.expert_activation: {opportunistic: {kept: 4}}\n", "p.yaml:1:41: ", "keep"},
           {"moe.expert_activation: {opportunistic: {keep: 0}}\n", "p.yaml:1:47: ", "KEEP >= 1"},
           {"collectives.fuse_norm: yes\n", "p.yaml:1:24: ", "true or false"},
           {"collectives.fuse_norm: \"true\"\n", "p.yaml:1:24: ", "quoted"},
           {"process.env: 3\n", "p.yaml:1:14: ", "a map of variable names to text"},
           {"process.env: {A: [1]}\n", "p.yaml:1:14: ", "must be text"},
           {"engine: serve\n", "p.yaml:1:9: set.engine: ", "or none"},
           {"- moe\n", "p.yaml:1:1: set: ", "must be a map of plan fields"},
       }) {
    const std::string message = Refused(c.yaml);
    EXPECT_THAT(message, StartsWith(c.start)) << c.yaml;
    EXPECT_THAT(message, HasSubstr(c.rule)) << c.yaml;
  }
}

TEST(PlanReaderTest, ReadsSweepsInAnySpelling) {
  Diagnostics diagnostics("p.yaml");
  const YamlValue root = ParseYaml(R"yaml(
moe:
  tile_order: [row_major, column_major]
  expert_activation: [top_k, {opportunistic: {keep: 4}}, opportunistic:6]
moe.l2_pin: [{share: 0.5}, {share: 0.75}]
parallel.expert: [1, 2]
)yaml",
                                   diagnostics);
  const std::vector<SweepSource> sweeps = ReadSweeps(root, "try", Plan{}, diagnostics);
  ASSERT_TRUE(diagnostics.ok()) << diagnostics.ToStatus();
  ASSERT_EQ(sweeps.size(), 4u);
  EXPECT_THAT(sweeps[1].values, ElementsAre("top_k", "opportunistic:4", "opportunistic:6"));
  EXPECT_EQ(sweeps[2].field, "moe.l2_pin.share");
  EXPECT_THAT(sweeps[2].values, ElementsAre("0.5", "0.75"));
  EXPECT_THAT(sweeps[3].values, ElementsAre("1", "2"));
}

TEST(PlanReaderTest, RefusesSweepsOfMoreThanOneField) {
  for (const char* yaml :
       {"moe.l2_pin: [{share: 0.5, select: random}]\n", "moe.l2_pin: [none]\n",
        "moe.l2_pin: [{share: 0.5}, {select: random}]\n", "moe.kernel: []\n", "moe.kernel: fused\n",
        "moe: [1, 2]\n", "moe.kernal: [fused]\n", "moe.kernel: [fused, fuzed]\n"}) {
    Diagnostics diagnostics("p.yaml");
    const YamlValue root = ParseYaml(yaml, diagnostics);
    ReadSweeps(root, "try", Plan{}, diagnostics);
    EXPECT_FALSE(diagnostics.ok()) << yaml;
  }
}

TEST(PlanReaderTest, FindsSettingsThatNothingUses) {
  Plan pin;
  pin.moe.l2_pin = L2Pin{.share = 0, .select = PinSelect::kRandom};
  EXPECT_THAT(std::string(CheckNothingIdle(pin).message()), HasSubstr("moe.l2_pin.share"));
  Plan draft;
  draft.speculative.acceptance = 0.5;
  EXPECT_FALSE(CheckNothingIdle(draft).ok());
  Plan engine;
  engine.engine = "serve";
  EXPECT_THAT(std::string(CheckNothingIdle(engine).message()), HasSubstr("JSON pointer"));
  EXPECT_TRUE(CheckNothingIdle(Plan{}).ok());
}

TEST(PlanReaderTest, RefusesHostTimesBeyondAllSense) {
  Plan plan;
  plan.launch.host_us_per_step = 1e9;
  EXPECT_TRUE(CheckNothingIdle(plan).ok());
  plan.launch.host_us_per_step = 1e300;
  EXPECT_THAT(std::string(CheckNothingIdle(plan).message()), HasSubstr("at most 1e+09 us"));
}

TEST(PlanReaderTest, SaysWhatHasNoEffectWithOneRank) {
  Plan plan;
  EXPECT_THAT(WhyIdle({"collectives.all_reduce", "ring"}, plan), HasSubstr("with one rank"));
  EXPECT_THAT(WhyIdle({"parallel.attention", "data"}, plan), HasSubstr("with one rank"));
  EXPECT_EQ(WhyIdle({"moe.kernel", "fused"}, plan), "");
  plan.parallel.tensor = 2;
  EXPECT_EQ(WhyIdle({"collectives.all_reduce", "ring"}, plan), "");
  EXPECT_THAT(WhyIdle({"collectives.all_to_all", "nccl"}, plan),
              HasSubstr("without parallel.attention"));
}

}  // namespace
}  // namespace lastflop
