// docs/findings.md, "The same verdicts in flop": its figures are these steps' work.

#include <gtest/gtest.h>

#include "step/make_step.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

struct Sums {
  double gflop = 0;
  double gb = 0;
  double expert_gflop = 0;
  double expert_weight_gb = 0;
  int64_t ops = 0;
};

Plan KimiPlan() {
  Plan plan;
  plan.parallel.tensor = 8;
  plan.moe.weights = WeightFormat::kInt4G32;
  return plan;
}

// Of rank 0 with this load in each MoE layer.
Sums SumsOf(const Plan& plan, int64_t batch, int64_t context, const ExpertLoad& load) {
  Point point;
  point.batch = batch;
  point.context = context;
  const auto step = MakeStep(KimiModel(), plan, point, 0, {.layers_kept = 0, .load = load});
  Sums sums;
  if (!step.ok()) {
    ADD_FAILURE() << step.status();
    return sums;
  }
  for (const Op& op : step->ops) {
    sums.gflop += op.work.flop * 1e-9;
    sums.gb += op.work.bytes() * 1e-9;
    if (op.category == OpCategory::kMoe) {
      sums.expert_gflop += op.work.flop * 1e-9;
      sums.expert_weight_gb += op.work.weight_bytes * 1e-9;
    }
    ++sums.ops;
  }
  return sums;
}

struct Row {
  int64_t batch;
  int64_t context;
  double unique_experts;
  double gflop;
  double expert_gflop;
  double gb;
};

TEST(FindingsWorkTest, KimiOnOneRankOfEight) {
  constexpr Row kRows[] = {
      {1, 4096, 8.0, 14.2, 5.3, 6.4},      {2, 4096, 14.7, 28.4, 10.6, 7.9},
      {10, 4096, 51.9, 142, 52.9, 17.4},   {64, 4096, 179.9, 908, 339, 58.7},
      {256, 512, 321.4, 2659, 1355, 82.8}, {1000, 512, 382.2, 10386, 5293, 148},
  };
  for (const Row& row : kRows) {
    const auto pairs = static_cast<double>(row.batch * 8);
    const Sums sums = SumsOf(KimiPlan(), row.batch, row.context, {pairs, row.unique_experts});
    EXPECT_NEAR(sums.gflop, row.gflop, 0.005 * row.gflop) << row.batch;
    EXPECT_NEAR(sums.expert_gflop, row.expert_gflop, 0.005 * row.expert_gflop) << row.batch;
    EXPECT_NEAR(sums.gb, row.gb, 0.01 * row.gb) << row.batch;
    EXPECT_EQ(sums.ops, 1341);
  }
}

TEST(FindingsWorkTest, WhatInterventionsChangeAtBatch64) {
  const Sums baseline = SumsOf(KimiPlan(), 64, 4096, {512, 179.9});
  EXPECT_NEAR(baseline.expert_weight_gb, 33.4, 0.05);
  Plan expert_parallel = KimiPlan();
  expert_parallel.parallel.expert = 8;
  EXPECT_NEAR(SumsOf(expert_parallel, 64, 4096, {64, 22.5}).expert_gflop, 338, 1);
  const Sums most_loaded = SumsOf(expert_parallel, 64, 4096, {104.3, 27.2});
  EXPECT_NEAR(most_loaded.expert_gflop, 551, 1);
  EXPECT_NEAR(most_loaded.expert_weight_gb, 40.4, 0.1);
  Plan columns = KimiPlan();
  columns.moe.tile_order = TileOrder::kColumnMajor;
  EXPECT_EQ(SumsOf(columns, 64, 4096, {512, 179.9}).gflop, baseline.gflop);
  Plan fused = KimiPlan();
  fused.moe.kernel = MoeKernel::kFused;
  EXPECT_EQ(SumsOf(fused, 64, 4096, {512, 179.9}).ops, baseline.ops - 120);
  EXPECT_NEAR(SumsOf(fused, 64, 4096, {512, 179.9}).gb, baseline.gb - 0.9, 0.05);
  Plan separate = KimiPlan();
  separate.moe.dequant = Dequant::kSeparate;
  EXPECT_NEAR(SumsOf(separate, 64, 4096, {512, 179.9}).gflop, baseline.gflop + 119, 0.5);
  EXPECT_NEAR(SumsOf(separate, 64, 4096, {512, 179.9}).gb, 296, 1);
  Plan opportunistic = KimiPlan();
  opportunistic.moe.opportunistic_keep = 4;
  const Sums kept = SumsOf(opportunistic, 64, 4096, {512, 112.6});
  EXPECT_NEAR(kept.expert_gflop, baseline.expert_gflop, 0.01);
  EXPECT_NEAR(kept.expert_weight_gb, 20.9, 0.05);
}

}  // namespace
}  // namespace lastflop
