#include "planner/cost/predict_step.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

struct MeasuredStep {
  int64_t tensor;
  int64_t batch;
  int64_t context;
  double us;
};

// experiments/results/h200 and h200x2: baselines.
constexpr MeasuredStep kKimiSteps[] = {
    {8, 1, 4096, 9818},   {8, 2, 4096, 10521},   {8, 10, 4096, 13063},  {8, 64, 4096, 26169},
    {8, 256, 512, 42394}, {8, 1000, 512, 92845}, {2, 1, 4096, 12794},   {2, 2, 4096, 15696},
    {2, 10, 4096, 24984}, {2, 64, 4096, 65959},  {2, 256, 512, 132056}, {2, 1000, 512, 256824}};
constexpr MeasuredStep kQwenSteps[] = {
    {8, 1, 4096, 4937},  {8, 2, 4096, 5154},    {8, 10, 4096, 5993},  {8, 64, 4096, 8465},
    {8, 256, 512, 9726}, {8, 1000, 512, 22685}, {2, 1, 4096, 4498},   {2, 2, 4096, 5377},
    {2, 10, 4096, 7223}, {2, 64, 4096, 14116},  {2, 256, 512, 15410}, {2, 1000, 512, 44117}};

void ExpectNear(const Model& model, std::span<const MeasuredStep> steps) {
  for (const MeasuredStep& measured : steps) {
    const auto prediction = PredictStep(model, H200x8(), TensorPlan(measured.tensor),
                                        DecodePoint(measured.batch, measured.context));
    ASSERT_TRUE(prediction.ok()) << prediction.status();
    EXPECT_NEAR(prediction->step.us / measured.us, 1, 0.1)
        << model.name << " tp" << measured.tensor << " batch " << measured.batch << ": predicted "
        << prediction->step.us << ", measured " << measured.us;
    EXPECT_LT(prediction->step.low_us, prediction->step.us);
    EXPECT_GT(prediction->step.high_us, prediction->step.us);
  }
}

TEST(PredictStepTest, ComesWithinTenPercentOfTheCommittedKimiBaselines) {
  ExpectNear(KimiModel(), kKimiSteps);
}

TEST(PredictStepTest, ComesWithinTenPercentOfTheCommittedQwenBaselines) {
  ExpectNear(QwenModel(), kQwenSteps);
}

// An intervention of a committed campaign: speedups in tokens at batches 1, 2, 10, 64, 256, 1000.
struct MeasuredIntervention {
  const char* field;
  const char* value;
  std::array<double, 6> speedups;
};

constexpr MeasuredIntervention kKimiInterventions[] = {
    {"decode.speculative.draft_tokens", "2", {1.736, 1.625, 1.431, 1.245, 1.155, 0.833}},
    {"launch.graph", "piecewise", {0.960, 0.971, 0.974, 0.986, 0.991, 0.984}},
    {"launch.graph", "none", {0.856, 0.887, 0.903, 0.946, 0.962, 0.980}},
    {"parallel.expert", "8", {0.929, 0.917, 0.888, 0.909, 0.940, 0.909}},
    {"moe.dequant", "separate", {0.663, 0.625, 0.436, 0.320, 0.293, 0.463}},
    {"moe.expert_activation", "opportunistic:4", {0.986, 0.993, 1.070, 1.120, 1.079, 1.041}}};
constexpr MeasuredIntervention kQwenInterventions[] = {
    {"decode.speculative.draft_tokens", "2", {1.854, 1.791, 1.673, 1.630, 1.059, 1.113}},
    {"parallel.expert", "8", {0.958, 0.951, 0.967, 0.984, 1.000, 0.954}},
    {"launch.graph", "piecewise", {0.953, 0.953, 0.960, 0.969, 0.971, 0.987}},
    {"launch.graph", "none", {0.761, 0.736, 0.874, 0.920, 0.924, 0.963}},
    {"moe.expert_activation", "opportunistic:4", {0.989, 0.992, 1.024, 1.027, 0.982, 0.984}},
    {"moe.weights", "int4_g32", {1.008, 1.012, 1.064, 1.109, 1.062, 1.167}}};

double PredictedSpeedup(const Model& model, const MeasuredIntervention& intervention,
                        const Point& point) {
  const Plan baseline = TensorPlan(8);
  Plan variant = baseline;
  variant.speculative.acceptance = 0.7;
  variant.speculative.draft_cost = 0.05;
  EXPECT_TRUE(SetPlanField(intervention.field, intervention.value, variant).ok());
  const auto before = PredictStep(model, H200x8(), baseline, point);
  const auto after = PredictStep(model, H200x8(), variant, point);
  EXPECT_TRUE(before.ok() && after.ok()) << intervention.field;
  return before.ok() && after.ok() ? after->tokens_per_s / before->tokens_per_s : 0;
}

// Kendall's tau between predicted and measured speedups, in geometric mean over the points.
double OrderAgreement(const Model& model, std::span<const MeasuredIntervention> interventions) {
  constexpr std::pair<int64_t, int64_t> kPoints[] = {{1, 4096},  {2, 4096},  {10, 4096},
                                                     {64, 4096}, {256, 512}, {1000, 512}};
  std::vector<std::pair<double, double>> pairs;
  for (const MeasuredIntervention& intervention : interventions) {
    double measured = 0;
    double predicted = 0;
    for (size_t i = 0; i < std::size(kPoints); ++i) {
      measured += std::log(intervention.speedups[i]);
      predicted += std::log(
          PredictedSpeedup(model, intervention, DecodePoint(kPoints[i].first, kPoints[i].second)));
    }
    pairs.emplace_back(measured, predicted);
  }
  double agreement = 0;
  double num = 0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double product =
          (pairs[i].first - pairs[j].first) * (pairs[i].second - pairs[j].second);
      agreement += product > 0 ? 1 : -1;
      num += 1;
    }
  }
  return agreement / num;
}

TEST(PredictStepTest, OrdersTheInterventionsOfTheCommittedCampaigns) {
  EXPECT_GE(OrderAgreement(KimiModel(), kKimiInterventions), 0.8);
  EXPECT_GE(OrderAgreement(QwenModel(), kQwenInterventions), 0.8);
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
