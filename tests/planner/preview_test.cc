#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/expand_trials.h"
#include "planner/prediction.h"
#include "planner/stability.h"
#include "tests/planner/campaign_builder.h"
#include "tests/planner/plan_grid.h"
#include "tests/step/test_models.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

// Qwen on two H200s, one decode point.
class PreviewCampaignTest : public ::testing::Test {
 protected:
  PreviewCampaignTest() {
    campaign_.name = "preview";
    campaign_.model = QwenModel();
    campaign_.machine_auto = false;
    campaign_.machine.name = "two";
    campaign_.machine.backend = "cuda";
    campaign_.machine.device_name = "NVIDIA H200";
    campaign_.machine.peak_bandwidth_gb_per_s = 4800;
    campaign_.machine.peak_bf16_tflop_per_s = 989;
    campaign_.machine.link_gb_per_s = 450;
    campaign_.machine.collective_latency_us = 10;
    campaign_.economics.gpu_hours = 50000;
    campaign_.baseline.parallel.tensor = 2;
    Point point;
    point.batch = 64;
    point.context = 4096;
    point.time_share = 1;
    campaign_.points = {point};
  }

  Intervention& Add(const std::string& id, const std::string& path, const std::string& value) {
    Intervention intervention;
    intervention.id = id;
    intervention.effort = {.low_hours = 8, .likely_hours = 8, .high_hours = 8};
    intervention.set = {{path, value}};
    campaign_.interventions.push_back(intervention);
    return campaign_.interventions.back();
  }

  Ranking Preview() {
    const absl::StatusOr<Ranking> ranking = PreviewCampaign(campaign_, {});
    EXPECT_TRUE(ranking.ok()) << ranking.status();
    return ranking.value_or(Ranking{});
  }

  Campaign campaign_;
};

TEST_F(PreviewCampaignTest, RanksAndStacksWhatTheModelPrices) {
  Add("int4", "moe.weights", "int4_g32").claim = Claim{.low = 1.01, .source = "ad"};
  const Ranking ranking = Preview();
  const RankedIntervention& int4 = Find(ranking, "int4");
  EXPECT_EQ(int4.standing, Standing::kPredicted);
  EXPECT_EQ(int4.place, 1);
  EXPECT_EQ(int4.effect, Effect::kFaster);
  EXPECT_EQ(int4.mix->origin, Origin::kModelled);
  EXPECT_EQ(int4.mix->num_pairs, 0);
  EXPECT_LT(*int4.mix->low, int4.mix->estimate);
  EXPECT_LE(int4.mix->estimate, *int4.ceiling * 1.01);
  EXPECT_EQ(int4.claim_verdict, ClaimVerdict::kUndecided) << "a model confirms nothing";
  ASSERT_EQ(ranking.sequence.size(), 1);
  EXPECT_THAT(ranking.answer, HasSubstr("Predicted, not measured: Build int4 first"));
  EXPECT_EQ(ranking.baseline[0].standing, Standing::kPredicted);
  EXPECT_FALSE(ranking.breakdown.empty());
  EXPECT_EQ(ranking.interventions[0].fidelity, Fidelity::kPredicted);
}

TEST_F(PreviewCampaignTest, SaysWhatTheModelDoesNotSeeInsteadOfOne) {
  Add("tiles", "moe.tile_order", "column_major");
  const RankedIntervention tiles = Find(Preview(), "tiles");
  EXPECT_EQ(tiles.standing, Standing::kNotRun);
  EXPECT_FALSE(tiles.mix.has_value());
  EXPECT_THAT(tiles.reason,
              HasSubstr("does not see what moe.tile_order (row_major to column_major) changes"));
}

TEST_F(PreviewCampaignTest, PricesNoKernelThatNobodyMeasured) {
  for (const char* kernel : {"plugin:magic", "reference", "cutlass"}) {
    Add(kernel, "moe.kernel", kernel);
    // Nor one beside something that it does see.
    campaign_.interventions.back().set.push_back({"moe.weights", "int4_g32"});
    const RankedIntervention one = Find(Preview(), kernel);
    EXPECT_EQ(one.standing, Standing::kNotRun) << kernel;
    EXPECT_THAT(one.reason, HasSubstr("does not see what moe.kernel (grouped to"));
  }
}

TEST_F(PreviewCampaignTest, SaysWhatItsVariantsTakeForGranted) {
  Add("norm", "collectives.fuse_norm", "true");
  EXPECT_THAT(Preview().assumptions, testing::Contains(HasSubstr("norm: fused collectives: 30%")));
}

TEST_F(PreviewCampaignTest, IsNoSurerOfOnePointThatIsWrittenAsTwenty) {
  Add("draft", "decode.speculative.draft_tokens", "2");
  const SpeedupFigure one = *Find(Preview(), "draft").mix;
  const Point point = campaign_.points[0];
  campaign_.points.assign(20, point);
  for (size_t i = 0; i < 20; ++i) {
    campaign_.points[i].context += static_cast<int64_t>(i);
    campaign_.points[i].time_share = 0.05;
  }
  const SpeedupFigure twenty = *Find(Preview(), "draft").mix;
  EXPECT_NEAR(*twenty.low, *one.low, 0.01);
  EXPECT_NEAR(*twenty.high, *one.high, 0.01);
}

TEST_F(PreviewCampaignTest, RanksNoPlanOnGpusThatTheMachineHasNot) {
  campaign_.machine.num_devices = 2;
  Add("four", "parallel.tensor", "4");
  const RankedIntervention four = Find(Preview(), "four");
  EXPECT_EQ(four.standing, Standing::kNotRun);
  EXPECT_THAT(four.reason, HasSubstr("it takes 4 GPUs: two has 2"));
  campaign_.machine.num_devices = 1;
  EXPECT_THAT(Preview().assumptions,
              testing::Contains(HasSubstr("the baseline takes 2 GPUs, two has 1")));
}

TEST_F(PreviewCampaignTest, LeavesSpeculationAsItIsInPrefill) {
  Point prefill = campaign_.points[0];
  prefill.phase = Phase::kPrefill;
  prefill.batch = 1;
  prefill.context = 1024;
  campaign_.points.push_back(prefill);
  campaign_.points[0].time_share = campaign_.points[1].time_share = 0.5;
  Intervention& draft = Add("draft", "decode.speculative.draft_tokens", "2");
  draft.set.push_back({"decode.speculative.draft_cost", "0.05"});
  campaign_.measure.prune = false;
  const RankedIntervention one = Find(Preview(), "draft");
  ASSERT_TRUE(one.mix.has_value()) << one.reason;
  EXPECT_EQ(one.points[1].speedup->estimate, 1);
  EXPECT_EQ(one.points[1].effect, Effect::kSame);
}

TEST_F(PreviewCampaignTest, DrawsPlacesFromIntervalsThatHoldFourOfFive) {
  Add("int4", "moe.weights", "int4_g32");
  Add("fused", "moe.kernel", "fused");
  campaign_.interventions.back().effort = {.low_hours = 1, .likely_hours = 8, .high_hours = 400};
  Ranking ranking = Preview();
  const std::vector<RankedIntervention> drawn = ranking.interventions;
  SetStability(campaign_, {.order = ranking.order, .interval_confidence = 0.8},
               ranking.interventions);
  for (size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_EQ(drawn[i].place_held, ranking.interventions[i].place_held);
  }
  SetStability(campaign_, {.order = ranking.order, .interval_confidence = 0.95},
               ranking.interventions);
  EXPECT_NE(drawn[0].place_held, ranking.interventions[0].place_held) << "the two differ here";
}

TEST_F(PreviewCampaignTest, PricesNothingWhereTheBaselineCannotRun) {
  Point large = campaign_.points[0];
  large.batch = 4096;
  campaign_.points.push_back(large);
  campaign_.points[0].time_share = campaign_.points[1].time_share = 0.5;
  campaign_.infeasible.push_back(
      {.intervention_id = kBaselineId, .choice = {}, .point_index = 1, .reason = "no room"});
  for (const Switchable switchable : {Switchable::kDeployment, Switchable::kPerBatch}) {
    campaign_.interventions.clear();
    Add("int4", "moe.weights", "int4_g32").switchable = switchable;
    const Ranking ranking = Preview();
    EXPECT_EQ(ranking.baseline[1].standing, Standing::kInfeasible);
    EXPECT_EQ(ranking.baseline[1].reason, "no room");
    EXPECT_FALSE(ranking.baseline[1].step_us.has_value());
    const RankedIntervention int4 = Find(ranking, "int4");
    EXPECT_FALSE(int4.points[1].speedup.has_value());
    EXPECT_FALSE(int4.mix.has_value()) << "half of the time has no figure";
    EXPECT_THAT(int4.reason, HasSubstr("no room"));
  }
  campaign_.infeasible[0].point_index = -1;
  EXPECT_THAT(std::string(PreviewCampaign(campaign_, {}).status().message()), HasSubstr("no room"));
}

TEST_F(PreviewCampaignTest, CallsAClaimImpossibleOnlyBeyondTheModelsOwnError) {
  campaign_.measure.prune = false;
  Add("int4", "moe.weights", "int4_g32");
  const double ceiling = *Find(Preview(), "int4").ceiling;
  campaign_.interventions[0].claim = Claim{.low = ceiling + 0.01, .source = "ad"};
  EXPECT_EQ(Find(Preview(), "int4").claim_verdict, ClaimVerdict::kUndecided) << ceiling;
  campaign_.interventions[0].claim->low = 4 * ceiling;
  const RankedIntervention far = Find(Preview(), "int4");
  EXPECT_EQ(far.claim_verdict, ClaimVerdict::kImpossible);
  EXPECT_EQ(far.claim_reason.rfind("predicted: ", 0), 0u) << far.claim_reason;
}

TEST_F(PreviewCampaignTest, SaysOfAClaimWhyItsPartWasNotPriced) {
  Add("tiles", "moe.tile_order", "column_major").claim =
      Claim{.low = 1.1, .of = "moe", .source = "ad"};
  EXPECT_THAT(Find(Preview(), "tiles").claim_reason,
              HasSubstr("does not see what moe.tile_order (row_major to column_major) changes"));
}

TEST_F(PreviewCampaignTest, TakesOneShotOverPcieToBeNoSoonerDoneThanNccl) {
  campaign_.baseline.collectives.all_reduce = AllReduceAlgorithm::kNccl;
  Add("one_shot", "collectives.all_reduce", "one_shot");
  const SpeedupFigure nvlink = *Find(Preview(), "one_shot").mix;
  campaign_.machine.link = "pcie";
  const Ranking ranking = Preview();
  const SpeedupFigure pcie = *Find(ranking, "one_shot").mix;
  EXPECT_LT(pcie.estimate, nvlink.estimate);
  EXPECT_THAT(ranking.assumptions,
              testing::Contains(HasSubstr("nobody measured one_shot over PCIe")));
}

TEST_F(PreviewCampaignTest, SpeaksOfPredictionsWhereNothingHelps) {
  Ranking ranking = Preview();
  EXPECT_EQ(ranking.sequence_note, "nothing is predicted to be faster");
  campaign_.machine.l2_bytes = 62914560;
  Add("pin", "moe.l2_pin.share", "1");
  EXPECT_THAT(Preview().answer, HasSubstr("Nothing here can help: of 1 interventions 1 pruned"));
}

TEST_F(PreviewCampaignTest, WarnsOfABorrowedMachineAndNotesBorrowedFormats) {
  const auto borrowed = testing::Contains(HasSubstr("nobody measured Other GPU"));
  EXPECT_THAT(Preview().warnings, testing::Not(borrowed));
  Add("fp4", "moe.weights", "nvfp4");
  campaign_.machine.device_name = "Other GPU";
  const Ranking ranking = Preview();
  EXPECT_THAT(ranking.warnings, borrowed);
  EXPECT_THAT(ranking.assumptions,
              testing::Contains(HasSubstr("experts in nvfp4: products priced by the int4_g32")));
  EXPECT_LT(*ranking.baseline[0].step_low_us, *ranking.baseline[0].step_us);
}

TEST_F(PreviewCampaignTest, SaysThatItPricesColdWeightsAndTakesAcceptanceAsGiven) {
  campaign_.measure.warm = true;
  Intervention& draft = Add("draft", "decode.speculative.draft_tokens", "2");
  draft.set.push_back({"decode.speculative.acceptance", "0.7"});
  draft.prior = Prior{.result = "+12%", .source = "a blog"};
  const Ranking ranking = Preview();
  EXPECT_THAT(ranking.warnings, testing::Contains(HasSubstr("prices cold ones")));
  EXPECT_THAT(ranking.warnings, testing::Not(testing::Contains(HasSubstr("may come from the"))));
  EXPECT_THAT(ranking.assumptions,
              testing::Contains(HasSubstr("accepted with a chance of 0.7 (draft)")));
  EXPECT_EQ(Find(ranking, "draft").prior->result, "+12%");
}

TEST_F(PreviewCampaignTest, PricesStacksTogetherInsteadOfMultiplying) {
  campaign_.baseline.collectives.all_reduce = AllReduceAlgorithm::kNccl;
  Add("int4", "moe.weights", "int4_g32");
  Add("one_shot", "collectives.all_reduce", "one_shot");
  const Ranking ranking = Preview();
  ASSERT_EQ(ranking.sequence.size(), 2);
  auto predictor = CampaignPredictor::Create(campaign_, campaign_.machine);
  TrialSpec both;
  both.baseline = both.variant = campaign_.baseline;
  both.variant.moe.weights = WeightFormat::kInt4G32;
  both.variant.collectives.all_reduce = AllReduceAlgorithm::kOneShot;
  const double together = predictor->Compare(both).speedup->estimate;
  EXPECT_NEAR(ranking.sequence[1].expected_stack, together, 1e-9);
  EXPECT_GT(together, ranking.sequence[0].speedup * ranking.sequence[1].speedup);
  EXPECT_THAT(ranking.sequence_note, HasSubstr("priced together"));
}

// What a predictor remembers of one trial is nothing that another one's figures depend on.
TEST(CampaignPredictorTest, PredictsATrialAsIfItWereTheFirst) {
  const Campaign campaign = PlanGrid(30, 3);
  auto shared = CampaignPredictor::Create(campaign, campaign.machine);
  const auto specs = ExpandTrials(campaign);
  ASSERT_TRUE(shared.ok() && specs.ok());
  int num_compared = 0;
  for (TrialSpec spec : *specs) {
    if (++num_compared % 3 == 0) {
      spec.baseline = spec.variant;  // Another baseline at the same point.
      spec.variant.launch.graph = GraphMode::kFull;
    }
    const PredictedTrial trial = shared->Compare(spec);
    const PredictedTrial first =
        CampaignPredictor::Create(campaign, campaign.machine)->Compare(spec);
    ASSERT_EQ(trial.speedup.has_value(), first.speedup.has_value()) << trial.reason;
    EXPECT_EQ(trial.reason, first.reason);
    EXPECT_EQ(trial.notes, first.notes);
    EXPECT_EQ(trial.baseline_us, first.baseline_us);
    EXPECT_EQ(trial.variant_us, first.variant_us);
    if (trial.speedup.has_value()) {
      EXPECT_EQ(trial.speedup->estimate, first.speedup->estimate);
      EXPECT_EQ(trial.speedup->low, first.speedup->low);
      EXPECT_EQ(trial.speedup->high, first.speedup->high);
    }
  }
}

TEST_F(PreviewCampaignTest, ClaimsNoConfidence) {
  const Ranking ranking = Preview();
  EXPECT_FALSE(ranking.confidence.has_value());
  EXPECT_FALSE(ranking.interval_confidence.has_value());
}

TEST_F(PreviewCampaignTest, PrunesByPredictedCeilingsUnlessToldNotTo) {
  campaign_.machine.l2_bytes = 62914560;
  Add("pin", "moe.l2_pin.share", "1");
  const RankedIntervention pin = Find(Preview(), "pin");
  EXPECT_EQ(pin.standing, Standing::kPruned);
  EXPECT_THAT(pin.reason, HasSubstr("predicted: the ceiling in the mix is 1.00"));
  campaign_.measure.prune = false;
  EXPECT_NE(Find(Preview(), "pin").standing, Standing::kPruned);
}

TEST_F(PreviewCampaignTest, TakesTheBestPredictedChoiceOfASweep) {
  Add("formats", "moe.weights", "bf16").try_values = {{"moe.weights", {"bf16", "int4_g32"}}};
  EXPECT_EQ(Find(Preview(), "formats").choice, "moe.weights=int4_g32");
}

TEST_F(PreviewCampaignTest, NeedsAMachineWithNumbers) {
  campaign_.machine_auto = true;
  EXPECT_THAT(std::string(PreviewCampaign(campaign_, {}).status().message()),
              HasSubstr("machine: auto"));
  campaign_.machine_auto = false;
  campaign_.machine.peak_bandwidth_gb_per_s.reset();
  EXPECT_EQ(PreviewCampaign(campaign_, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
