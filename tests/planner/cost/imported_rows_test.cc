#include "planner/cost/imported_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "planner/cost/moe_curve.h"
#include "planner/cost/predict_step.h"
#include "tests/planner/cost/synthetic_rows.h"
#include "tests/planner/cost/test_machine.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

Machine Rtx(const char* device = "NVIDIA RTX PRO 6000 Blackwell Server Edition") {
  Machine machine;
  machine.name = "rtx";
  machine.backend = "cuda";
  machine.device_name = device;
  machine.architecture = "sm_120";
  machine.num_devices = 8;
  machine.peak_bandwidth_gb_per_s = 1597;
  machine.peak_bf16_tflop_per_s = 462;
  machine.link = "pcie";
  machine.link_gb_per_s = 64;
  return machine;
}

// Rows of Kimi's experts, `slower` times what the priors say, at tp 1 to 8.
std::vector<MoeLayerRow> KimiRows(const std::string& system, double slower) {
  std::vector<MoeLayerRow> rows;
  for (const int64_t tp : {1, 2, 4, 8}) {
    for (int64_t tokens = 1; tokens <= 1024; tokens *= 4) {
      MoeLayerRow row = SyntheticRow(system, tp, 1, tokens);
      row.hidden = 7168;
      row.inter = 2048;
      row.experts = 384;
      row.topk = 8;
      row.distribution = "uniform";
      row.origin = "lab bench";
      row.latency_us = slower * MoeLayerMicros(*WorkOfRow(row), PriorMean("int4_wo"));
      rows.push_back(row);
    }
  }
  return rows;
}

Plan KimiPlan() {
  Plan plan;
  plan.parallel.tensor = 8;
  plan.launch.graph = GraphMode::kFull;
  plan.collectives.all_reduce = AllReduceAlgorithm::kNccl;
  return plan;
}

Point DecodePoint() {
  Point point;
  point.batch = 64;
  point.context = 1024;
  point.routing.distribution = Distribution::kUniform;
  return point;
}

StepPrediction Predict(const Machine& machine, ImportedRows* imported, const Plan& plan) {
  const Model model = KimiModel();
  auto predictor = StepPredictor::Create(model, machine);
  EXPECT_TRUE(predictor.ok()) << predictor.status();
  if (imported != nullptr) {
    predictor->UseImported(*imported);
  }
  const auto prediction = predictor->Predict(plan, DecodePoint(), {.with_ops = true});
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.value_or(StepPrediction{});
}

double MicrosOf(const StepPrediction& prediction, const std::vector<std::string>& ops) {
  double us = 0;
  for (const PredictedOp& op : prediction.ops) {
    for (const std::string& name : ops) {
      us += op.op == name ? op.time.us : 0;
    }
  }
  return us;
}

const std::vector<std::string>& MoeOps() {
  static const std::vector<std::string> ops = {"router.top_k", "moe.permute", "moe.gate_up",
                                               "moe.swiglu",   "moe.down",    "moe.combine"};
  return ops;
}

TEST(ImportedRowsTest, SetTheTimeOfMoeLayersOnAMachineThatNobodyMeasured) {
  auto imported =
      ImportedRows::Create({.moe = KimiRows("rtx_pro_6000_server", 1), .all_reduce = {}});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const StepPrediction with = Predict(Rtx(), &*imported, KimiPlan());
  MoeLayerRow row = KimiRows("rtx_pro_6000_server", 1)[3 * 6 + 3];
  ASSERT_EQ(row.tokens, 64);
  ASSERT_EQ(row.tp, 8);
  const double layers = static_cast<double>(KimiModel().num_moe_layers());
  // Cold, as the rows of a `cold` calibration are.
  EXPECT_NEAR(MicrosOf(with, MoeOps()) / layers / *row.latency_us, 1, 0.02);
  EXPECT_THAT(with.notes, Contains(AllOf(HasSubstr("MoE layers: imported rows of made_up_marlin on "
                                                   "rtx_pro_6000_server (lab bench), "),
                                         HasSubstr("measured"))));
  const StepPrediction without = Predict(Rtx(), nullptr, KimiPlan());
  EXPECT_THAT(without.notes, Not(Contains(HasSubstr("imported"))));
  EXPECT_NE(MicrosOf(without, MoeOps()), MicrosOf(with, MoeOps()));
  EXPECT_EQ(MicrosOf(without, {"lm_head"}), MicrosOf(with, {"lm_head"}));
  EXPECT_LT(with.step.low_us, with.step.us);
  EXPECT_GT(with.step.high_us, with.step.us);
}

double RelativeWidth(const StepPrediction& prediction, const std::string& name) {
  for (const PredictedOp& op : prediction.ops) {
    if (op.op == name) {
      return op.time.high_us / op.time.us;
    }
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(ImportedRowsTest, MakeNoChoiceSurerThatTheyAreNotOf) {
  auto rows = ImportedRows::Create({.moe = KimiRows("rtx_pro_6000_server", 1), .all_reduce = {}});
  Plan separate = KimiPlan();
  separate.moe.dequant = Dequant::kSeparate;
  const double of_rows = RelativeWidth(Predict(Rtx(), &*rows, KimiPlan()), "moe.down");
  const double other = RelativeWidth(Predict(Rtx(), &*rows, separate), "moe.down");
  const double curve = RelativeWidth(Predict(Rtx(), nullptr, separate), "moe.down");
  EXPECT_NEAR(std::log(other), std::hypot(std::log(of_rows), std::log(curve)), 1e-9);
  EXPECT_GT(other, of_rows);
}

TEST(ImportedRowsTest, AreFollowedWhereTheySayTwiceAsMuch) {
  auto once = ImportedRows::Create({.moe = KimiRows("rtx_pro_6000_server", 1), .all_reduce = {}});
  auto twice = ImportedRows::Create({.moe = KimiRows("rtx_pro_6000_server", 2), .all_reduce = {}});
  EXPECT_NEAR(MicrosOf(Predict(Rtx(), &*twice, KimiPlan()), MoeOps()) /
                  MicrosOf(Predict(Rtx(), &*once, KimiPlan()), MoeOps()),
              2, 0.02);
}

TEST(ImportedRowsTest, LeaveOurOwnMeasurementsOnTheMachineOfTheCurves) {
  auto imported = ImportedRows::Create({.moe = KimiRows("h200_sxm", 3), .all_reduce = {}});
  Plan plan = KimiPlan();
  plan.moe.weights = WeightFormat::kFp8Block;  // No curve of ours is of it; no row is either.
  EXPECT_EQ(Predict(H200x8(), &*imported, plan).step.us, Predict(H200x8(), nullptr, plan).step.us);
}

TEST(ImportedRowsTest, OfTheNearerArchitectureGoBeforeCurvesOfAnother) {
  auto imported =
      ImportedRows::Create({.moe = KimiRows("rtx_pro_6000_server", 1), .all_reduce = {}});
  const StepPrediction prediction = Predict(Rtx("NVIDIA GeForce RTX 5090"), &*imported, KimiPlan());
  EXPECT_THAT(prediction.notes,
              Contains(HasSubstr("assumed: curve of rtx_pro_6000_server scaled")));
  EXPECT_EQ(prediction.step.origin, Origin::kAssumed);
}

TEST(ImportedRowsTest, AreNotUsedForADeviceThatRowsCannotName) {
  auto imported =
      ImportedRows::Create({.moe = KimiRows("rtx_pro_6000_server", 1), .all_reduce = {}});
  EXPECT_EQ(Predict(Rtx("Some GPU"), &*imported, KimiPlan()).step.us,
            Predict(Rtx("Some GPU"), nullptr, KimiPlan()).step.us);
}

TEST(ImportedRowsTest, KeepWhatCurvesSayOfChoicesThatRowsDoNotHave) {
  auto imported =
      ImportedRows::Create({.moe = KimiRows("rtx_pro_6000_server", 1), .all_reduce = {}});
  Plan fewer = KimiPlan();
  fewer.moe.opportunistic_keep = 2;
  const double own = MicrosOf(Predict(Rtx(), nullptr, fewer), {"moe.gate_up"}) /
                     MicrosOf(Predict(Rtx(), nullptr, KimiPlan()), {"moe.gate_up"});
  const double scaled = MicrosOf(Predict(Rtx(), &*imported, fewer), {"moe.gate_up"}) /
                        MicrosOf(Predict(Rtx(), &*imported, KimiPlan()), {"moe.gate_up"});
  EXPECT_LT(own, 1);
  EXPECT_NEAR(scaled, own, 1e-6);
}

TEST(ImportedRowsTest, SetTheTimeOfAllReduces) {
  std::vector<AllReduceRow> rows;
  for (double bytes = 1024; bytes <= 64e6; bytes *= 2) {
    rows.push_back({.system = "rtx_pro_6000_server",
                    .source = "lab",
                    .kernel = "NCCL",
                    .gpus = 8,
                    .bytes = bytes,
                    .latency_us = 50 + bytes / 20e3,
                    .origin = "lab bench"});
  }
  auto imported = ImportedRows::Create({.moe = {}, .all_reduce = rows});
  ASSERT_TRUE(imported.ok()) << imported.status();
  const StepPrediction prediction = Predict(Rtx(), &*imported, KimiPlan());
  EXPECT_THAT(prediction.notes,
              Contains(HasSubstr("all-reduces: imported rows of NCCL on rtx_pro_6000_server")));
  // 64 tokens of 7168 bf16: 917,504 bytes.
  const double layers = static_cast<double>(KimiModel().num_layers);
  EXPECT_NEAR(MicrosOf(prediction, {"all_reduce.attention"}) / layers, 50 + 917504 / 20e3, 5);
  Plan one_shot = KimiPlan();
  one_shot.collectives.all_reduce = AllReduceAlgorithm::kOneShot;
  EXPECT_THAT(Predict(Rtx(), &*imported, one_shot).notes,
              Not(Contains(HasSubstr("all-reduces: imported"))))
      << "rows of NCCL say nothing of other kernels";
}

}  // namespace
}  // namespace lastflop
