#include "planner/ceiling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "planner/expected_steps.h"
#include "planner/field_reach.h"
#include "step/floors.h"
#include "step/layout.h"
#include "step/make_step.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

Op GemmOp(const std::string& name, OpCategory category, int64_t out_features, double bytes) {
  Op op;
  op.name = name;
  op.category = category;
  op.shape = GemmShape{.num_tokens = 1, .out_features = out_features, .in_features = 8};
  op.work.weight_bytes = bytes;
  return op;
}

// A step of 1000 us with 100 us in "moe.down"; the variant halves that op's bytes, whose floor at
// 1 GB/s is then 50 us.
struct TenthMadeTwiceAsFast {
  TenthMadeTwiceAsFast();

  Machine machine;
  Step baseline;
  StepBreakdown breakdown;
  CeilingInput input;
};

TenthMadeTwiceAsFast::TenthMadeTwiceAsFast() {
  machine.peak_bandwidth_gb_per_s = 1;
  baseline.ops = {GemmOp("moe.down", OpCategory::kMoe, 16, 100e3),
                  GemmOp("lm_head", OpCategory::kLmHead, 64, 900e3)};
  input.variant.ops = {GemmOp("moe.down", OpCategory::kMoe, 8, 50e3),
                       GemmOp("lm_head", OpCategory::kLmHead, 64, 900e3)};
  baseline.tokens_per_step = 1;
  input.variant.tokens_per_step = 1;
  breakdown.step_us = 1000;
  breakdown.ops = {{OpCategory::kLmHead, "lm_head", 900, 0.9, std::nullopt},
                   {OpCategory::kMoe, "moe.down", 100, 0.1, std::nullopt}};
  input.baseline = &baseline;
  input.machine = &machine;
  input.breakdown = &breakdown;
}

TEST(MakeCeilingTest, IsFivePercentForATenthOfTheStepMadeTwiceAsFast) {
  const Ceiling ceiling = MakeCeiling(TenthMadeTwiceAsFast().input, "step");
  EXPECT_NEAR(*ceiling.speedup, 1.0526, 1e-4);
  EXPECT_THAT(ceiling.arithmetic, HasSubstr("1000.0 / (1000.0 - (100.0 - 50.0))"));
  EXPECT_THAT(ceiling.arithmetic, HasSubstr("moe.down"));
}

TEST(MakeCeilingTest, BoundsAPartByItsOwnTime) {
  EXPECT_NEAR(*MakeCeiling(TenthMadeTwiceAsFast().input, "moe").speedup, 2, 1e-9);
  EXPECT_NEAR(*MakeCeiling(TenthMadeTwiceAsFast().input, "op:moe.down").speedup, 2, 1e-9);
  EXPECT_FALSE(MakeCeiling(TenthMadeTwiceAsFast().input, "op:no.such").speedup.has_value());
}

TEST(MakeCeilingTest, TakesNoFloorAboveTheMeasuredTime) {
  TenthMadeTwiceAsFast tenth;
  tenth.input.variant.ops[0].work.weight_bytes = 500e3;
  EXPECT_DOUBLE_EQ(*MakeCeiling(tenth.input, "step").speedup, 1);
}

TEST(MakeCeilingTest, IsAbsentWhenNoOpDiffers) {
  TenthMadeTwiceAsFast tenth;
  tenth.input.variant.ops = tenth.baseline.ops;
  EXPECT_FALSE(MakeCeiling(tenth.input, "step").speedup.has_value());
}

TEST(MakeCeilingTest, LetsTimeBetweenOpsShrinkWithTheOpsThatAreTouched) {
  TenthMadeTwiceAsFast tenth;
  tenth.breakdown.ops[0].us = 700;
  tenth.breakdown.ops.push_back({OpCategory::kHost, "unclaimed", 200, 0.2, std::nullopt});
  // One of two ops is touched: half of the 200 us.
  EXPECT_NEAR(*MakeCeiling(tenth.input, "step").speedup, 1000.0 / (1000 - 50 - 100), 1e-9);
}

TEST(MakeCeilingTest, CountsTokensAndDraftsOfSpeculation) {
  TenthMadeTwiceAsFast tenth;
  tenth.input.variant.tokens_per_step = 3.3616;
  tenth.input.draft_share = 0.4;
  EXPECT_NEAR(*MakeCeiling(tenth.input, "step").speedup, 1000.0 / 1350 * 3.3616, 1e-9);
}

class PrepareCeilingTest : public ::testing::Test {
 protected:
  PrepareCeilingTest() {
    campaign_.model = QwenModel();
    campaign_.layers_kept = 2;
    campaign_.baseline.parallel.tensor = 2;
    point_.batch = 8;
    point_.context = 512;
    machine_.peak_bandwidth_gb_per_s = 20;
    StepOptions options;
    options.layers_kept = 2;
    const auto step = MakeStep(campaign_.model, campaign_.baseline, point_, 0, options);
    breakdown_.step_us = 0;
    std::map<std::string, OpShare> ops;
    for (const Op& op : step->ops) {
      ops[op.name].category = op.category;
      ops[op.name].op = op.name;
      ops[op.name].us += 1e6;
      breakdown_.step_us += 1e6;
    }
    for (const auto& [name, op] : ops) {
      breakdown_.ops.push_back(op);
    }
  }

  absl::StatusOr<CeilingInput> Prepare(const Plan& variant) {
    return PrepareCeiling(campaign_.baseline, variant, point_, breakdown_, steps_);
  }

  // The step as it runs, with the routing that ceilings expect.
  Step WithAllLayers(const Plan& plan) {
    ExpectedLoads loads;
    const auto load = loads.OfBoundingRank(
        campaign_.model, point_.routing, point_.batch * QueryTokens(plan, point_),
        plan.parallel.expert, plan.moe.opportunistic_keep, machine_.backend == "cpu");
    EXPECT_TRUE(load.ok()) << load.status();
    const auto step = MakeStep(campaign_.model, plan, point_, 0, {.load = *load});
    EXPECT_TRUE(step.ok()) << step.status();
    return *step;
  }

  Campaign campaign_;
  Point point_;
  Machine machine_;
  StepBreakdown breakdown_;
  ExpectedSteps steps_{campaign_, machine_};
};

TEST_F(PrepareCeilingTest, TouchesOnlyTheExpertsWhenTheirFormatChanges) {
  Plan variant = campaign_.baseline;
  variant.moe.weights = WeightFormat::kInt4G32;
  const auto input = Prepare(variant);
  ASSERT_TRUE(input.ok()) << input.status();
  const Ceiling ceiling = MakeCeiling(*input, "step");
  ASSERT_TRUE(ceiling.speedup.has_value()) << ceiling.arithmetic;
  EXPECT_GT(*ceiling.speedup, 1);
  EXPECT_THAT(ceiling.arithmetic, HasSubstr("moe."));
  EXPECT_THAT(ceiling.arithmetic, testing::Not(HasSubstr("attention")));
}

TEST_F(PrepareCeilingTest, PricesFewerExpertsABatchThoughEveryShapeStays) {
  Plan variant = campaign_.baseline;
  variant.moe.opportunistic_keep = 2;
  const auto input = Prepare(variant);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_THAT(MakeCeiling(*input, "step").arithmetic, HasSubstr("moe.gate_up"));
}

TEST_F(PrepareCeilingTest, HasNoneForWhatActsOutsideOfTheOps) {
  Plan variant = campaign_.baseline;
  variant.launch.dependent = true;
  variant.moe.weights = WeightFormat::kInt4G32;
  EXPECT_THAT(std::string(Prepare(variant).status().message()), HasSubstr("launch.dependent"));
  variant = campaign_.baseline;
  variant.process_env = {{"OMP_WAIT_POLICY", "active"}};
  EXPECT_FALSE(Prepare(variant).ok());
}

// A kernel computes all of its products anew, though their shapes stay.
TEST_F(PrepareCeilingTest, LetsAnotherKernelTouchEveryOpOfTheExperts) {
  campaign_.baseline.moe.kernel = MoeKernel::kReference;
  Plan variant = campaign_.baseline;
  variant.moe.kernel = MoeKernel::kGrouped;
  const auto input = Prepare(variant);
  ASSERT_TRUE(input.ok()) << input.status();
  const Ceiling ceiling = MakeCeiling(*input, "step");
  EXPECT_THAT(ceiling.arithmetic, HasSubstr("moe.down"));
  EXPECT_THAT(ceiling.arithmetic, HasSubstr("moe.gate_up"));
}

TEST_F(PrepareCeilingTest, BoundsWorkOnCollectivesByTheirTime) {
  double collectives_us = 0;
  double norms_us = 0;
  for (const OpShare& op : breakdown_.ops) {
    collectives_us += op.category == OpCategory::kCollective ? op.us : 0;
    norms_us += op.category == OpCategory::kNorm ? op.us : 0;
  }
  ASSERT_GT(collectives_us, 0);
  const auto ceiling_of = [&](const char* path, const char* value) {
    Plan variant = campaign_.baseline;
    EXPECT_TRUE(SetPlanField(path, value, variant).ok());
    const auto input = Prepare(variant);
    EXPECT_TRUE(input.ok()) << path << ": " << input.status();
    return input.ok() ? MakeCeiling(*input, "step").speedup.value_or(0) : 0;
  };
  double total_us = 0;
  for (const OpShare& op : breakdown_.ops) {
    total_us += op.us;
  }
  const double without = total_us / (total_us - collectives_us);
  EXPECT_GT(ceiling_of("collectives.nccl.protocol", "ll"), 1);
  EXPECT_LE(ceiling_of("collectives.nccl.protocol", "ll"), without);
  EXPECT_GT(ceiling_of("collectives.fuse_norm", "true"),
            ceiling_of("collectives.nccl.protocol", "ll"));
  EXPECT_LE(ceiling_of("collectives.fuse_norm", "true"),
            total_us / (total_us - collectives_us - norms_us));
  EXPECT_DOUBLE_EQ(ceiling_of("overlap", "two_batch"), without);
  Plan variant = campaign_.baseline;
  ASSERT_TRUE(SetPlanField("overlap", "single_batch:32", variant).ok());
  EXPECT_FALSE(MakeCeiling(*Prepare(variant), "moe").speedup.has_value())
      << "it moves time between parts";
}

TEST_F(PrepareCeilingTest, BoundsLaunchesByTheTimeThatNoOpClaims) {
  breakdown_.ops.push_back({OpCategory::kHost, "unclaimed", 50, 0, std::nullopt});
  double total_us = 0;
  for (const OpShare& op : breakdown_.ops) {
    total_us += op.us;
  }
  Plan variant = campaign_.baseline;
  variant.launch.graph = GraphMode::kFull;
  const auto input = Prepare(variant);
  ASSERT_TRUE(input.ok()) << input.status();
  const Ceiling ceiling = MakeCeiling(*input, "step");
  EXPECT_NEAR(*ceiling.speedup, total_us / (total_us - 50), 1e-9);
  EXPECT_THAT(ceiling.arithmetic, HasSubstr(" - 50.0 gaps) = "));
  EXPECT_THAT(ceiling.arithmetic, testing::Not(HasSubstr("(0.0 - 0.0)"))) << "no op is touched";
}

TEST_F(PrepareCeilingTest, IsOneWhereTheStepHasNothingToChange) {
  campaign_.baseline.parallel.tensor = 1;
  Plan variant = campaign_.baseline;
  variant.collectives.all_reduce = AllReduceAlgorithm::kOneShot;
  const auto input = Prepare(variant);
  ASSERT_TRUE(input.ok()) << input.status();
  EXPECT_EQ(MakeCeiling(*input, "step").speedup, 1.0);
}

TEST(ReachOfTest, KnowsEveryFieldOfAPlan) {
  for (const PlanField& field : PlanFields()) {
    const std::string path(field.path);
    const bool may_be_anything =
        path == "launch.dependent" || path == "process.env" || path.rfind("engine.", 0) == 0;
    EXPECT_EQ(ReachOf(path, "x").kind == FieldReach::Kind::kAnything, may_be_anything) << path;
  }
}

TEST_F(PrepareCeilingTest, BoundsRanksOfOneHostByTheMeanOneAndDevicesByTheMostLoaded) {
  point_.routing.distribution = Distribution::kZipf;
  ExpectedLoads loads;
  const auto load = [&](bool shares_bandwidth) {
    return loads.OfBoundingRank(campaign_.model, point_.routing, /*tokens=*/4, /*expert_groups=*/2,
                                /*opportunistic_keep=*/0, shares_bandwidth);
  };
  ASSERT_TRUE(load(true).ok() && load(false).ok());
  EXPECT_LT(load(true)->unique_experts, load(false)->unique_experts);
}

// Layers that are alike are built once, which changes no figure.
TEST_F(PrepareCeilingTest, IsAsOfAllLayersApart) {
  campaign_.layers_kept = 0;
  for (const Model& model : {QwenModel(), KimiModel()}) {
    campaign_.model = model;
    for (const auto& [path, value] :
         {std::pair("moe.weights", "nvfp4"), std::pair("parallel.expert", "2"),
          std::pair("collectives.fuse_norm", "true"), std::pair("moe.kernel", "fused"),
          std::pair("launch.graph", "full"), std::pair("decode.speculative.draft_tokens", "2")}) {
      Plan variant = campaign_.baseline;
      ASSERT_TRUE(SetPlanField(path, value, variant).ok());
      ExpectedSteps steps(campaign_, machine_);
      auto input = PrepareCeiling(campaign_.baseline, variant, point_, breakdown_, steps);
      ASSERT_TRUE(input.ok()) << path << ": " << input.status();
      const Ceiling distinct = MakeCeiling(*input, "step");
      const Step baseline = WithAllLayers(campaign_.baseline);
      EXPECT_GT(baseline.ops.size(), 10 * input->baseline->ops.size());
      input->baseline = &baseline;
      input->variant = WithAllLayers(variant);
      const Ceiling all = MakeCeiling(*input, "step");
      ASSERT_TRUE(all.speedup.has_value()) << path << ": " << all.arithmetic;
      EXPECT_NEAR(*distinct.speedup / *all.speedup, 1, 1e-12) << path;
      EXPECT_EQ(distinct.arithmetic, all.arithmetic) << path;
    }
  }
}

TEST_F(PrepareCeilingTest, HasNoneWhenRanksDiffer) {
  Plan variant = campaign_.baseline;
  variant.parallel.tensor = 1;
  EXPECT_FALSE(Prepare(variant).ok());
}

}  // namespace
}  // namespace lastflop
