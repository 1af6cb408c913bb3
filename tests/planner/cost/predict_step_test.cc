#include "planner/cost/predict_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tests/planner/cost/committed_results.h"
#include "tests/planner/cost/test_machine.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

Plan TensorPlan(int64_t tensor) {
  Plan plan;
  plan.parallel.tensor = tensor;
  plan.launch.graph = GraphMode::kFull;
  plan.collectives.all_reduce = AllReduceAlgorithm::kNccl;
  return plan;
}

Point DecodePoint(int64_t batch, int64_t context) {
  Point point;
  point.batch = batch;
  point.context = context;
  point.routing.distribution = Distribution::kZipf;
  return point;
}

double StepMicros(const Plan& plan, const Point& point, const Machine& machine = H200x8()) {
  const auto prediction = PredictStep(KimiModel(), machine, plan, point);
  EXPECT_TRUE(prediction.ok()) << prediction.status();
  return prediction.ok() ? prediction->step.us : 0;
}

constexpr const char* kKimi = "h200/kimi-k2.5-int4-decode.json";
constexpr const char* kQwen = "h200/qwen3-30b-a3b-bf16-decode.json";
constexpr const char* kKimiOnTwo = "h200x2/kimi-k2.5-int4-decode-tp2.json";
constexpr const char* kQwenOnTwo = "h200x2/qwen3-30b-a3b-bf16-decode-tp2.json";

void ExpectNear(const Model& model, const char* name) {
  const auto result = ReadCommittedResult(name);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->points.size(), 6u);
  for (const CommittedPoint& measured : result->points) {
    const auto prediction = PredictStep(model, H200x8(), result->baseline, measured.point);
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_NEAR(prediction->step.us / measured.step_us, 1, 0.1)
        << name << " batch " << measured.point.batch << ": predicted " << prediction->step.us
        << ", measured " << measured.step_us;
    EXPECT_LT(prediction->step.low_us, prediction->step.us);
    EXPECT_GT(prediction->step.high_us, prediction->step.us);
  }
}

TEST(PredictStepTest, ComesWithinTenPercentOfTheCommittedKimiBaselines) {
  ExpectNear(KimiModel(), kKimi);
  ExpectNear(KimiModel(), kKimiOnTwo);
}

TEST(PredictStepTest, ComesWithinTenPercentOfTheCommittedQwenBaselines) {
  ExpectNear(QwenModel(), kQwen);
  ExpectNear(QwenModel(), kQwenOnTwo);
}

TEST(PredictStepTest, PricesTheRowsAndWeightsThatCublasltTakesForNothing) {
  Plan plan = TensorPlan(1);
  const auto grouped = PredictStep(QwenModel(), H200x8(), plan, DecodePoint(1, 1024));
  plan.moe.kernel = MoeKernel::kCublaslt;
  const auto padded = PredictStep(QwenModel(), H200x8(), plan, DecodePoint(1, 1024));
  ASSERT_TRUE(grouped.ok() && padded.ok()) << grouped.status() << padded.status();
  // One token reads 8 of 128 experts of 9.4 MB, and the batch all: 120 more in 48 layers.
  EXPECT_GT(padded->step.us - grouped->step.us, 48.0 * 120 * 3 * 768 * 2048 * 2 / 4.8e6);
  EXPECT_EQ(padded->step.origin, Origin::kModelled);
  EXPECT_THAT(padded->notes, ::testing::Contains(::testing::HasSubstr("16 times the flop")));
  EXPECT_THAT(padded->notes, ::testing::Not(::testing::Contains(::testing::HasSubstr(
                                 "moe.kernel: no measurement says what it changes"))));
}

// What moves bytes between caches or reorders tiles: curves have no place for it.
bool IsPredicted(const std::string& id) {
  return id != "column-major-tiles" && id != "l2-pinning" && id != "pin-and-column-major";
}

double PredictedSpeedup(const Model& model, const Plan& baseline, const Plan& variant,
                        const Point& point) {
  const auto before = PredictStep(model, H200x8(), baseline, point);
  const auto after = PredictStep(model, H200x8(), variant, point);
  EXPECT_TRUE(before.ok() && after.ok());
  return before.ok() && after.ok() ? after->tokens_per_s / before->tokens_per_s : 0;
}

struct OrderedIntervention {
  double measured = 0;  // Sums of logarithms over the points.
  double predicted = 0;
  double low = 0;
  double high = 0;
};

// Kendall's tau between predicted and measured speedups, in geometric mean over the points, over
// the pairs that the campaign itself tells apart: their intervals have nothing in common.
double OrderAgreement(const Model& model, const char* name) {
  const auto result = ReadCommittedResult(name);
  EXPECT_TRUE(result.ok()) << result.status();
  std::vector<OrderedIntervention> ordered;
  for (const CommittedIntervention& intervention : result->interventions) {
    if (!IsPredicted(intervention.id)) {
      continue;
    }
    OrderedIntervention one{.low = intervention.low, .high = intervention.high};
    for (size_t i = 0; i < intervention.speedups.size(); ++i) {
      one.measured += std::log(intervention.speedups[i]);
      one.predicted += std::log(PredictedSpeedup(model, result->baseline, intervention.plans[i],
                                                 result->points[i].point));
    }
    ordered.push_back(one);
  }
  EXPECT_GE(ordered.size(), 3u);
  double agreement = 0;
  double num = 0;
  for (size_t i = 0; i < ordered.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const OrderedIntervention& a = ordered[i];
      const OrderedIntervention& b = ordered[j];
      if (a.low <= b.high && b.low <= a.high) {
        continue;
      }
      agreement += (a.measured - b.measured) * (a.predicted - b.predicted) > 0 ? 1 : -1;
      num += 1;
    }
  }
  EXPECT_GE(num, 3);
  return agreement / num;
}

TEST(PredictStepTest, OrdersTheInterventionsOfTheCommittedCampaigns) {
  EXPECT_GE(OrderAgreement(KimiModel(), kKimi), 0.8);
  EXPECT_GE(OrderAgreement(KimiModel(), kKimiOnTwo), 0.8);
  EXPECT_GE(OrderAgreement(QwenModel(), kQwen), 0.8);
  EXPECT_GE(OrderAgreement(QwenModel(), kQwenOnTwo), 0.8);
}

TEST(PredictStepTest, CategoriesSumToTheStep) {
  Plan plan = TensorPlan(8);
  plan.speculative = {.draft_tokens = 2, .acceptance = 0.7, .draft_cost = 0.05};
  plan.overlap = Overlap::kSingleBatch;
  const auto prediction = PredictStep(KimiModel(), H200x8(), plan, DecodePoint(64, 4096));
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  double sum = 0;
  for (const PredictedPart& part : prediction->categories) {
    sum += part.time.us;
  }
  EXPECT_NEAR(sum, prediction->step.us, 1e-6 * sum);
  EXPECT_GT(prediction->overlap_us, 0);
}

double OpMicros(const Plan& plan, const Point& point, const std::string& name) {
  const auto prediction = PredictStep(KimiModel(), H200x8(), plan, point);
  for (const PredictedOp& op : prediction.ok() ? prediction->ops : std::vector<PredictedOp>{}) {
    if (op.op == name) {
      return op.time.us / static_cast<double>(KimiModel().num_moe_layers());
    }
  }
  ADD_FAILURE() << name;
  return 0;
}

TEST(PredictStepTest, PricesPeerCollectivesOfTwoH200sAsMeasured) {
  // experiments/results/h200x2/collectives.json at 14 KiB, which is one token of Kimi.
  Plan plan = TensorPlan(2);
  plan.collectives.all_reduce = AllReduceAlgorithm::kOneShot;
  EXPECT_NEAR(OpMicros(plan, DecodePoint(1, 4096), "all_reduce.moe"), 2.19, 0.15);
  plan.collectives.all_reduce = AllReduceAlgorithm::kTwoShot;
  EXPECT_NEAR(OpMicros(plan, DecodePoint(1, 4096), "all_reduce.moe"), 3.58, 0.15);
}

TEST(PredictStepTest, ChargesPrefillForNoDrafts) {
  Plan drafts = TensorPlan(8);
  drafts.speculative = {.draft_tokens = 2, .acceptance = 0.7, .draft_cost = 0.05};
  Point point = DecodePoint(1, 1024);
  EXPECT_GT(StepMicros(drafts, point), StepMicros(TensorPlan(8), point));
  point.phase = Phase::kPrefill;
  EXPECT_EQ(StepMicros(drafts, point), StepMicros(TensorPlan(8), point));
}

TEST(PredictStepTest, BorrowsForAnotherMachineAndSaysSo) {
  Machine machine = H200x8();
  machine.device_name = "Some GPU";
  machine.architecture = "sm_120";
  machine.peak_bandwidth_gb_per_s = 2400;
  const auto prediction = PredictStep(KimiModel(), machine, TensorPlan(8), DecodePoint(256, 512));
  ASSERT_TRUE(prediction.ok()) << prediction.status();
  EXPECT_EQ(prediction->step.origin, Origin::kAssumed);
  ASSERT_FALSE(prediction->notes.empty());
  EXPECT_NE(prediction->notes[0].find("NVIDIA H200"), std::string::npos);
  EXPECT_GT(prediction->step.us, StepMicros(TensorPlan(8), DecodePoint(256, 512)));
}

// A preview prices it all the same, for who might build it.
TEST(PredictStepTest, SaysOfAFusedKernelThatNoBackendHas) {
  const auto is_told = [](WeightFormat weights, const std::string& architecture) {
    Plan plan = TensorPlan(8);
    plan.moe.kernel = MoeKernel::kFused;
    plan.moe.weights = weights;
    Machine machine = H200x8();
    machine.architecture = architecture;
    const auto prediction = PredictStep(KimiModel(), machine, plan, DecodePoint(1, 4096));
    EXPECT_TRUE(prediction.ok()) << prediction.status();
    return ::testing::Matches(::testing::Contains(
        ::testing::HasSubstr("where a trial is unsupported")))(prediction->notes);
  };
  EXPECT_FALSE(is_told(WeightFormat::kInt4G32, "sm_90a"));
  EXPECT_TRUE(is_told(WeightFormat::kBf16, "sm_90a"));
  EXPECT_TRUE(is_told(WeightFormat::kInt4G32, "sm_120"));
}

TEST(PredictStepTest, RefusesAMachineWithoutBandwidth) {
  Machine machine = H200x8();
  machine.peak_bandwidth_gb_per_s.reset();
  const auto prediction = PredictStep(KimiModel(), machine, TensorPlan(8), DecodePoint(1, 4096));
  EXPECT_EQ(prediction.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(prediction.status().message().find("peak_bandwidth_gb_per_s"), std::string::npos);
}

TEST(PredictStepTest, RefusesAPlanThatDoesNotDivideTheModel) {
  EXPECT_EQ(PredictStep(KimiModel(), H200x8(), TensorPlan(7), DecodePoint(1, 4096)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PredictStepTest, PipelineStagesFollowEachOther) {
  Plan plan = TensorPlan(4);
  plan.parallel.pipeline = 2;
  const double pipelined = StepMicros(plan, DecodePoint(64, 4096));
  EXPECT_NEAR(pipelined / StepMicros(TensorPlan(4), DecodePoint(64, 4096)), 1, 0.05);
}

// Decode: two stages that are never idle take what they take of two halves. Prefill: the pipeline
// begins and ends empty.
TEST(PredictStepTest, MicroBatchesFillAPipelineInDecode) {
  Plan plan = TensorPlan(4);
  plan.parallel.pipeline = 2;
  const double half = StepMicros(plan, DecodePoint(32, 4096));
  plan.parallel.micro_batches = 2;
  EXPECT_NEAR(StepMicros(plan, DecodePoint(64, 4096)) / half, 1, 0.05);
  Point prompts = DecodePoint(4, 512);
  prompts.phase = Phase::kPrefill;
  const double in_two = StepMicros(plan, prompts);
  plan.parallel.micro_batches = 1;
  prompts.batch = 2;
  EXPECT_NEAR(in_two / StepMicros(plan, prompts), 1.5, 0.05);
}

TEST(PredictStepTest, OpsOfAPipelineAddUpToItsStep) {
  Plan plan = TensorPlan(4);
  plan.parallel.pipeline = 2;
  for (const int64_t micro_batches : {1, 2, 4}) {
    plan.parallel.micro_batches = micro_batches;
    const auto prediction = PredictStep(KimiModel(), H200x8(), plan, DecodePoint(64, 4096));
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    double ops_us = 0;
    for (const PredictedOp& op : prediction->ops) {
      ops_us += op.time.us;
    }
    double host_us = 0;
    for (const PredictedPart& part : prediction->categories) {
      host_us += part.category == OpCategory::kHost ? part.time.us : 0;
    }
    EXPECT_NEAR(ops_us + host_us, prediction->step.us, 1e-6 * prediction->step.us);
  }
}

TEST(LoadEstimatorTest, KnowsHowManyExpertsUniformRoutingTouches) {
  const Model model = KimiModel();
  LoadEstimator loads(model);
  const auto load = loads.Estimate({}, 64, 1, 0, 0);
  ASSERT_TRUE(load.ok());
  EXPECT_NEAR(load->mean_rank.unique_experts, 284.2, 0.1);
}

TEST(LoadEstimatorTest, ZipfTouchesWhatDrawsTouched) {
  const Model model = KimiModel();
  LoadEstimator loads(model);
  Routing routing;
  routing.distribution = Distribution::kZipf;
  // Realised in experiments/results/h200/kimi-k2.5-int4-decode.json.
  constexpr std::pair<int64_t, double> kRealised[] = {{1, 8.0},    {2, 14.6},    {10, 52.3},
                                                      {64, 178.2}, {256, 321.4}, {1000, 382.1}};
  for (const auto& [tokens, unique] : kRealised) {
    const auto load = loads.Estimate(routing, tokens, 1, 0, 0);
    ASSERT_TRUE(load.ok());
    EXPECT_NEAR(load->mean_rank.unique_experts / unique, 1, 0.03) << tokens;
  }
}

// Roots are taken of the fitted powers; a power beside them takes the general way.
TEST(PredictStepTest, TakesRootsForThePowersThatTheyAre) {
  OpCurves near = H200OpCurves();
  for (OpCurve& curve : near.of) {
    curve.power = curve.power * (1 + 1e-13);
  }
  for (const Model& model : {KimiModel(), QwenModel()}) {
    const Machine machine = H200x8();
    const auto roots = PredictStep(model, machine, TensorPlan(4), DecodePoint(64, 4096));
    const auto powers = PredictStep(model, machine, TensorPlan(4), DecodePoint(64, 4096), near);
    ASSERT_TRUE(roots.ok() && powers.ok());
    EXPECT_NEAR(roots->step.us / powers->step.us, 1, 1e-9);
    ASSERT_EQ(roots->ops.size(), powers->ops.size());
    for (size_t i = 0; i < roots->ops.size(); ++i) {
      EXPECT_NEAR(roots->ops[i].time.us / powers->ops[i].time.us, 1, 1e-9) << roots->ops[i].op;
    }
  }
}

TEST(LoadEstimatorTest, TheMostLoadedRankHasMoreThanTheMeanUnlessBalanced) {
  const Model model = KimiModel();
  LoadEstimator loads(model);
  Routing routing;
  routing.distribution = Distribution::kZipf;
  const auto zipf = loads.Estimate(routing, 64, 8, 0, 0);
  routing.distribution = Distribution::kBalanced;
  const auto balanced = loads.Estimate(routing, 64, 8, 0, 0);
  ASSERT_TRUE(zipf.ok() && balanced.ok());
  EXPECT_GT(zipf->most_loaded_rank.pairs, 1.3 * zipf->mean_rank.pairs);
  EXPECT_NEAR(balanced->most_loaded_rank.pairs, 64, 1e-6);
  EXPECT_NEAR(balanced->most_loaded_rank.unique_experts, 48, 1e-6);
}

}  // namespace
}  // namespace lastflop
