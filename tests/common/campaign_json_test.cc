#include "common/campaign_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>

#include "absl/strings/str_replace.h"

namespace lastflop {
namespace {

using ::testing::HasSubstr;

Model SomeModel() {
  Model model;
  model.name = "a \"quoted\"\nname";
  model.num_layers = 3;
  model.layer_kinds = {LayerKind::kDense, LayerKind::kMoe, LayerKind::kMoe};
  model.num_experts = 384;
  model.rms_norm_epsilon = 1e-5;
  model.attention = {.kind = AttentionKind::kMla, .num_heads = 64, .kv_lora_rank = 512};
  model.router = {.scoring = RouterScoring::kSigmoid, .has_bias = true, .scaling_factor = 2.827};
  model.experts = {.format = WeightFormat::kInt4G32, .group_size = 32};
  model.assumed = {"rope_theta"};
  return model;
}

Campaign SomeCampaign() {
  Campaign campaign;
  campaign.name = "a<b>&\"c', d=1+1\n</SCRIPT>";
  campaign.model = SomeModel();
  campaign.layers_kept = 2;
  campaign.machine_auto = false;
  campaign.machine.cold_read = {{.bytes = 1e6, .us = 1.0 / 3.0}};
  campaign.machine.peak_bandwidth_gb_per_s = 4800;
  campaign.baseline.parallel.tensor = 8;
  campaign.baseline.process_env["A"] = "b\nc";
  campaign.points = {{.phase = Phase::kPrefill,
                      .batch = 1000,
                      .context = 512,
                      .time_share = 0.1,
                      .routing = {.distribution = Distribution::kTrace,
                                  .seed = std::numeric_limits<uint64_t>::max(),
                                  .trace_file = "counts.csv",
                                  .trace_popularity = {{1, 2.5}, {3, 4}}}}};
  campaign.measure.max_time = std::chrono::milliseconds(900);
  campaign.measure.half_width = 1e-6;
  campaign.budget.wall = std::chrono::minutes(6);
  campaign.economics.gpu_hours = 50000;
  campaign.interventions = {{.id = "pin",
                             .title = "Pin",
                             .tier = 3,
                             .effort = {.low_hours = 2, .likely_hours = 8, .high_hours = 24},
                             .risk = Risk::kHigh,
                             .quality = Quality::kLossy,
                             .switchable = Switchable::kPerBatch,
                             .claim = Claim{.low = 1.2,
                                            .high = 1.5,
                                            .of = "moe",
                                            .batch_low = 64,
                                            .batch_high = {},
                                            .source = ""},
                             .prior = Prior{.result = "+2%", .source = "a measurement"},
                             .needs = {"x"},
                             .excludes = {"y"},
                             .set = {{.path = "moe.l2_pin.share", .value = "0.75"}},
                             .try_values = {{"moe.tile_order", {"row_major", "column_major"}}},
                             .infeasible_reason = "384 mod 5 = 4"}};
  campaign.infeasible = {
      {.intervention_id = "pin", .choice = "a=b", .point_index = 2, .reason = "384 mod 5 = 4"}};
  campaign.fidelity = Fidelity::kShard;
  campaign.overrides = {"measure.max_time=900ms"};
  campaign.warnings = {"careful"};
  return campaign;
}

TEST(CampaignJsonTest, ARoundTripLosesNothing) {
  const std::string json = ToJson(SomeCampaign());
  const absl::StatusOr<Campaign> read = CampaignFromJson(json);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(ToJson(*read), json);
  EXPECT_EQ(read->name, SomeCampaign().name);
  EXPECT_EQ(read->baseline, SomeCampaign().baseline);
  EXPECT_EQ(read->points[0].routing.seed, std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(read->machine.cold_read[0].us, 1.0 / 3.0);
  EXPECT_EQ(read->measure.max_time, std::chrono::milliseconds(900));
  EXPECT_EQ(read->interventions[0].claim->high, 1.5);
  EXPECT_EQ(read->interventions[0].claim->batch_high, std::nullopt);
  EXPECT_EQ(read->interventions[0].try_values[0].second[1], "column_major");
  EXPECT_EQ(read->infeasible[0].point_index, 2);
  EXPECT_EQ(read->model.layer_kinds, SomeModel().layer_kinds);
}

TEST(CampaignJsonTest, ModelsMachinesAndTrialsTravelAlone) {
  EXPECT_EQ(ToJson(*ModelFromJson(ToJson(SomeModel()))), ToJson(SomeModel()));
  const Machine machine = SomeCampaign().machine;
  EXPECT_EQ(ToJson(*MachineFromJson(ToJson(machine))), ToJson(machine));
  TrialSpec trial;
  trial.trial_id = "t0007";
  trial.intervention_id = "pin";
  trial.point_index = 2;
  trial.variant.moe.kernel = MoeKernel::kFused;
  trial.settled = Standing::kInfeasible;
  const absl::StatusOr<TrialSpec> read = TrialSpecFromJson(ToJson(trial));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->variant, trial.variant);
  EXPECT_EQ(read->settled, Standing::kInfeasible);
}

TEST(CampaignJsonTest, RefusesWhatANewerBinaryWrote) {
  const std::string json = ToJson(SomeCampaign());
  const auto refusal = [&](const char* from, const char* to) {
    const std::string changed = absl::StrReplaceAll(json, {{from, to}});
    EXPECT_NE(changed, json);
    return std::string(CampaignFromJson(changed).status().message());
  };
  EXPECT_THAT(
      refusal("\"tier\":", "\"tierr\":"),
      HasSubstr("campaign.interventions[0]: unknown key \"tierr\"; did you mean \"tier\"?"));
  EXPECT_THAT(refusal("\"risk\":\"high\"", "\"risk\":\"extreme\""),
              HasSubstr("campaign.interventions[0].risk: \"extreme\" must be low, medium, high"));
  EXPECT_THAT(refusal("\"moe.dequant\":", "\"moe.dequantize\":"), HasSubstr("campaign.baseline"));
  EXPECT_THAT(refusal("\"batch\":1000", "\"batch\":1000.5"),
              HasSubstr("campaign.points[0].batch: 1000.5 must be a whole number"));
}

TEST(CampaignJsonTest, RefusesWhatIsNoCampaign) {
  for (const char* text : {"", "[]", "3", "{\"schema\": \"one\"}", "{\"points\": {}}", "{"}) {
    EXPECT_EQ(CampaignFromJson(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace lastflop
