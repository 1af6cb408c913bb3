// What each family says, read from configs of its own small sizes, and the published sizes that
// experiments/models/ has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "common/model.h"
#include "spec/model_reader.h"
#include "tests/spec/model_configs.h"

namespace lastflop {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr LayerKind kDense = LayerKind::kDense;
constexpr LayerKind kMoe = LayerKind::kMoe;

Model Read(const std::string& config) {
  absl::StatusOr<Model> model = ReadModelConfig(config, "config.json");
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *model : Model{};
}

std::string ErrorOf(const std::string& config) {
  const absl::StatusOr<Model> model = ReadModelConfig(config, "config.json");
  return model.ok() ? "" : std::string(model.status().message());
}

TEST(ModelFamiliesTest, ReadsDeepseekV3) {
  const Model model = Read(
      DeepseekConfig("deepseek_v3",
                     R"("q_lora_rank": 48, "n_group": 4, "topk_group": 2, "topk_method": "noaux_tc",
         "scoring_func": "sigmoid", "norm_topk_prob": true, "routed_scaling_factor": 2.5,
         "num_nextn_predict_layers": 1, "rope_scaling": {"type": "yarn", "factor": 40},
         "architectures": ["DeepseekV3ForCausalLM"])"));
  EXPECT_EQ(model.architecture, "DeepseekV3ForCausalLM");
  EXPECT_THAT(model.layer_kinds, ElementsAre(kDense, kMoe, kMoe, kMoe));
  EXPECT_EQ(model.dense_intermediate_size, 512);
  EXPECT_EQ(model.num_shared_experts, 1);
  EXPECT_EQ(model.shared_intermediate_size, 64);
  EXPECT_EQ(model.attention.kind, AttentionKind::kMla);
  EXPECT_EQ(model.attention.q_lora_rank, 48);
  EXPECT_EQ(model.attention.kv_lora_rank, 32);
  EXPECT_EQ(model.attention.rotary_dim, 8);
  EXPECT_EQ(model.router, (RouterDims{.scoring = RouterScoring::kSigmoid,
                                      .has_bias = true,
                                      .num_groups = 4,
                                      .top_k_groups = 2,
                                      .renormalize = true,
                                      .scaling_factor = 2.5}));
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("num_nextn_predict_layers: 1")));
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("rope_scaling: yarn")));
}

TEST(ModelFamiliesTest, ReadsDeepseekV2WithASoftmaxAndAQueryInOneProduct) {
  const Model model = Read(DeepseekConfig(
      "deepseek_v2", R"("q_lora_rank": null, "topk_method": "group_limited_greedy", "n_group": 8,
                        "topk_group": 3, "scoring_func": "softmax", "norm_topk_prob": false,
                        "routed_scaling_factor": 16.0)"));
  EXPECT_EQ(model.attention.q_lora_rank, 0);
  EXPECT_EQ(model.router, (RouterDims{.scoring = RouterScoring::kSoftmax,
                                      .num_groups = 8,
                                      .top_k_groups = 3,
                                      .scaling_factor = 16}));
}

// Whether a config without `key`, which `members` has, reads as with its usual `value` and says so.
void ExpectAssumed(const std::string& config, const std::string& key, const std::string& value) {
  SCOPED_TRACE(key);
  const Model model = Read(config);
  EXPECT_THAT(model.assumed, Contains(key + ": " + value + ", the family's default"));
}

TEST(ModelFamiliesTest, SaysWhichDefaultsOfDeepseekItTook) {
  // Without any of the optional keys: no leading dense layers, shared experts and query rank.
  const std::string config =
      R"({"model_type": "deepseek_v3", "hidden_size": 256, "vocab_size": 1000,
      "num_hidden_layers": 4, "intermediate_size": 512, "moe_intermediate_size": 64,
      "n_routed_experts": 16, "num_experts_per_tok": 2, "num_attention_heads": 4,
      "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 16})";
  const Model model = Read(config);
  EXPECT_EQ(model.num_dense_layers(), 3);
  EXPECT_EQ(model.num_shared_experts, 1);
  EXPECT_EQ(model.attention.q_lora_rank, 1536);
  EXPECT_EQ(model.router, (RouterDims{.scoring = RouterScoring::kSigmoid,
                                      .has_bias = true,
                                      .num_groups = 8,
                                      .top_k_groups = 4,
                                      .renormalize = true,
                                      .scaling_factor = 2.5}));
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, std::string>>{{"first_k_dense_replace", "3"},
                                                        {"moe_layer_freq", "1"},
                                                        {"n_shared_experts", "1"},
                                                        {"q_lora_rank", "1536"},
                                                        {"n_group", "8"},
                                                        {"topk_group", "4"},
                                                        {"routed_scaling_factor", "2.5"},
                                                        {"norm_topk_prob", "true"},
                                                        {"scoring_func", "sigmoid"},
                                                        {"topk_method", "noaux_tc"},
                                                        {"attention_bias", "false"}}) {
    ExpectAssumed(config, key, value);
  }
}

TEST(ModelFamiliesTest, ReadsNullAsNoneOfIt) {
  const Model model = Read(R"({"model_type": "deepseek_v3", "hidden_size": 256, "vocab_size": 1000,
      "num_hidden_layers": 4, "intermediate_size": 512, "moe_intermediate_size": 64,
      "n_routed_experts": 16, "num_experts_per_tok": 2, "num_attention_heads": 4,
      "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 16,
      "q_lora_rank": null, "n_shared_experts": null})");
  EXPECT_EQ(model.attention.q_lora_rank, 0);
  EXPECT_EQ(model.num_shared_experts, 0);
  EXPECT_THAT(model.assumed, Not(Contains(HasSubstr("q_lora_rank"))));
  EXPECT_THAT(model.assumed, Not(Contains(HasSubstr("n_shared_experts"))));
}

TEST(ModelFamiliesTest, SaysWhichDefaultsOfOtherFamiliesItTook) {
  const std::string minimax = LocalExpertsConfig("minimax_m2");
  ExpectAssumed(minimax, "rotary_dim", "32");
  ExpectAssumed(minimax, "use_qk_norm", "true");
  ExpectAssumed(minimax, "scoring_func", "sigmoid");
  ExpectAssumed(minimax, "use_routing_bias", "true");
  const std::string qwen = QwenConfig("qwen3_moe");
  ExpectAssumed(qwen, "norm_topk_prob", "false");
  ExpectAssumed(qwen, "decoder_sparse_step", "1");
  ExpectAssumed(qwen, "mlp_only_layers", "none");
  ExpectAssumed(qwen, "attention_bias", "false");
  const std::string llama = LocalExpertsConfig("llama4_text", R"("intermediate_size_mlp": 128)");
  ExpectAssumed(llama, "interleave_moe_layer_step", "1");
  ExpectAssumed(llama, "use_qk_norm", "true");
  ExpectAssumed(LocalExpertsConfig("gpt_oss"), "attention_bias", "true");
}

TEST(ModelFamiliesTest, TakesTheHeadsOfGptOssWhereItsConfigIsSilent) {
  const Model model = Read(R"({"model_type": "gpt_oss", "hidden_size": 2880, "vocab_size": 1000,
      "num_hidden_layers": 2, "intermediate_size": 2880, "num_local_experts": 8,
      "num_experts_per_tok": 4, "num_attention_heads": 64, "num_key_value_heads": 8})");
  EXPECT_EQ(model.attention.head_dim, 64);
  EXPECT_EQ(model.rope_theta, 150000);
  EXPECT_THAT(model.assumed, Contains("head_dim: 64, the family's default"));
}

TEST(ModelFamiliesTest, TakesTheUsualHeadsOfKeysAndValuesWhereTheyDivide) {
  const auto read = [](const char* heads, const char* more) {
    return Read(std::string(R"({"model_type": "mixtral", "hidden_size": 256, "vocab_size": 1000,
        "num_hidden_layers": 2, "intermediate_size": 64, "num_local_experts": 8,
        "num_experts_per_tok": 2, "num_attention_heads": )") +
                heads + more + "}");
  };
  const Model usual = read("32", "");
  EXPECT_EQ(usual.attention.num_kv_heads, 8);
  EXPECT_THAT(usual.assumed, Contains("num_key_value_heads: 8, the family's default"));
  EXPECT_EQ(read("32", R"(, "num_key_value_heads": null)").attention.num_kv_heads, 32);
  EXPECT_EQ(read("4", "").attention.num_kv_heads, 4);
}

TEST(ModelFamiliesTest, RefusesHeadsOfWhichNothingIsRotated) {
  EXPECT_THAT(
      ErrorOf(QwenConfig("glm4_moe", R"("n_routed_experts": 16, "partial_rotary_factor": 0.001)")),
      HasSubstr("partial_rotary_factor: 0 rotated dimensions: must be 2 or more"));
}

TEST(ModelFamiliesTest, BlamesTheMissingGroupsAndNotTheChosenOnes) {
  EXPECT_THAT(ErrorOf(DeepseekConfig("glm_moe_dsa", R"("topk_group": 4)")),
              HasSubstr("n_group: is missing, and 1, the family's default, does not fit: 4: must "
                        "be at most the 1 groups"));
}

TEST(ModelFamiliesTest, FindsThePartOfAHeadThatIsRotatedInRopeParameters) {
  const std::string rope =
      R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.25})";
  EXPECT_EQ(Read(DeepseekConfig("deepseek_v3")).attention.rotary_dim, 8);
  EXPECT_EQ(Read(QwenConfig("glm4_moe", R"("n_routed_experts": 16, )" + rope)).attention.rotary_dim,
            16);
  EXPECT_EQ(Read(LocalExpertsConfig("minimax_m2", rope)).attention.rotary_dim, 8);
  EXPECT_THAT(Read(QwenConfig("qwen3_moe", rope)).not_modelled,
              Contains(HasSubstr("partial_rotary_factor: 0.25, not read for qwen3_moe")));
}

TEST(ModelFamiliesTest, ReadsGlm45vInsideItsTextConfig) {
  const Model model =
      Read(R"({"model_type": "glm4v_moe", "text_config": )" +
           QwenConfig("glm4v_moe_text", R"("n_routed_experts": 16, "partial_rotary_factor": 0.5)") +
           "}");
  EXPECT_EQ(model.model_type, "glm4v_moe_text");
  EXPECT_EQ(model.attention.rotary_dim, 32);
  EXPECT_TRUE(model.attention.bias);
  EXPECT_EQ(model.num_dense_layers(), 1);
}

TEST(ModelFamiliesTest, ReadsLayersThatAreListedAsDenseOrSparse) {
  const Model model = Read(DeepseekConfig(
      "glm4_moe_lite", R"("mlp_layer_types": ["dense", "dense", "sparse", "sparse"])"));
  EXPECT_THAT(model.layer_kinds, ElementsAre(kDense, kDense, kMoe, kMoe));
  EXPECT_THAT(ErrorOf(DeepseekConfig("glm4_moe_lite", R"("mlp_layer_types": ["dense"])")),
              HasSubstr("mlp_layer_types: has 1 layers: the model has 4"));
  EXPECT_THAT(ErrorOf(DeepseekConfig("glm4_moe_lite", R"("mlp_layer_types": ["x"])")),
              HasSubstr("mlp_layer_types: has \"x\": each must be dense or sparse"));
}

TEST(ModelFamiliesTest, CountsWhatIsStored) {
  const absl::StatusOr<Model> model = ReadModelFile("experiments/models/deepseek-v3.json");
  ASSERT_TRUE(model.ok()) << model.status();
  // kv_b_proj of 61 layers in fp8 as the rest of the attention; the device keeps it as bf16.
  EXPECT_EQ(ModelBytes(*model), 672987258880);
  EXPECT_THAT(model->assumed, Contains(HasSubstr("kv_b_proj: bf16 on the device")));
}

TEST(ModelFamiliesTest, IgnoresTheGroupsOfAGreedyRouter) {
  const Model model = Read(
      DeepseekConfig("deepseek_v2", R"("topk_method": "greedy", "n_group": 4, "topk_group": 1)"));
  EXPECT_EQ(model.router.num_groups, 1);
  EXPECT_EQ(model.router.top_k_groups, 1);
}

TEST(ModelFamiliesTest, ReadsGlm5AndNamesItsIndexer) {
  const Model model = Read(
      DeepseekConfig("glm_moe_dsa", R"("q_lora_rank": 48, "index_topk": 2048, "index_n_heads": 32,
                                       "rope_parameters": {"rope_type": "default"})"));
  EXPECT_TRUE(model.router.has_bias);
  EXPECT_THAT(model.not_modelled, ElementsAre(HasSubstr("index_topk: 2048, the sparse-attention")));
}

TEST(ModelFamiliesTest, ReadsGlm4MoeWithPartialRotation) {
  const std::string config = QwenConfig(
      "glm4_moe", R"("n_routed_experts": 16, "n_shared_experts": 1, "first_k_dense_replace": 1,
                     "head_dim": 32, "partial_rotary_factor": 0.5, "use_qk_norm": true,
                     "attention_bias": true, "routed_scaling_factor": 2.5)");
  const Model model = Read(config);
  EXPECT_THAT(model.layer_kinds, ElementsAre(kDense, kMoe, kMoe, kMoe));
  EXPECT_EQ(model.attention.kind, AttentionKind::kGqa);
  EXPECT_EQ(model.attention.rotary_dim, 16);
  EXPECT_TRUE(model.attention.qk_norm);
  EXPECT_TRUE(model.attention.bias);
  EXPECT_EQ(model.router.scoring, RouterScoring::kSigmoid);
  EXPECT_TRUE(model.router.has_bias);
  EXPECT_TRUE(model.router.renormalize);
}

TEST(ModelFamiliesTest, ReadsQwen3MoeWithInterleavedAndListedDenseLayers) {
  EXPECT_THAT(Read(QwenConfig("qwen3_moe")).layer_kinds, ElementsAre(kMoe, kMoe, kMoe, kMoe));
  EXPECT_THAT(Read(QwenConfig("qwen3_moe", R"("decoder_sparse_step": 2)")).layer_kinds,
              ElementsAre(kDense, kMoe, kDense, kMoe));
  const Model model = Read(
      QwenConfig("qwen3_moe", R"("mlp_only_layers": [1], "head_dim": 32, "norm_topk_prob": true)"));
  EXPECT_THAT(model.layer_kinds, ElementsAre(kMoe, kDense, kMoe, kMoe));
  EXPECT_EQ(model.num_shared_experts, 0);
  EXPECT_TRUE(model.attention.qk_norm);
  EXPECT_FALSE(model.attention.bias);
  EXPECT_EQ(model.router, (RouterDims{.renormalize = true}));
}

TEST(ModelFamiliesTest, NamesWhatChangesTheWorkAndTheFamilyDoesNotRead) {
  const Model model = Read(QwenConfig(
      "qwen3_moe", R"("n_shared_experts": 2, "first_k_dense_replace": 0, "n_group": 1)"));
  EXPECT_EQ(model.num_shared_experts, 0);
  EXPECT_THAT(model.not_modelled,
              ElementsAre(HasSubstr("n_shared_experts: 2, not read for qwen3_moe")));
}

TEST(ModelFamiliesTest, ReadsQwen2MoeWithItsSharedExpert) {
  const Model model = Read(QwenConfig("qwen2_moe", R"("shared_expert_intermediate_size": 192)"));
  EXPECT_EQ(model.num_shared_experts, 1);
  EXPECT_EQ(model.shared_intermediate_size, 192);
  EXPECT_TRUE(model.attention.bias);
  EXPECT_FALSE(model.attention.qk_norm);
  EXPECT_EQ(model.attention.head_dim, 64);
  EXPECT_THAT(model.assumed, Contains(HasSubstr("head_dim: 64")));
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("shared_expert_gate")));
}

TEST(ModelFamiliesTest, ReadsMiniMaxM2) {
  const Model model = Read(LocalExpertsConfig(
      "minimax_m2", R"("rotary_dim": 16, "use_qk_norm": true, "use_routing_bias": true,
                       "scoring_func": "sigmoid", "num_mtp_modules": 3)"));
  EXPECT_EQ(model.moe_intermediate_size, 64);
  EXPECT_EQ(model.num_dense_layers(), 0);
  EXPECT_EQ(model.attention.rotary_dim, 16);
  EXPECT_EQ(
      model.router,
      (RouterDims{.scoring = RouterScoring::kSigmoid, .has_bias = true, .renormalize = true}));
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("num_mtp_modules: 3")));
}

TEST(ModelFamiliesTest, ReadsMixtralWhoseIntermediateSizeIsTheExperts) {
  const Model model = Read(LocalExpertsConfig("mixtral", R"("sliding_window": null)"));
  EXPECT_EQ(model.moe_intermediate_size, 64);
  EXPECT_EQ(model.dense_intermediate_size, 0);
  EXPECT_EQ(model.router, (RouterDims{.renormalize = true}));
  EXPECT_THAT(model.not_modelled, ElementsAre());
}

TEST(ModelFamiliesTest, ReadsGptOssAndNamesWhatItDoesNotRun) {
  const Model model = Read(LocalExpertsConfig(
      "gpt_oss", R"("sliding_window": 128, "layer_types": ["sliding_attention", "full_attention",
                    "sliding_attention", "full_attention"])"));
  EXPECT_TRUE(model.router.softmax_after_top_k);
  EXPECT_TRUE(model.attention.bias);
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("sliding_window: 128 in 2 of 4 layers")));
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("attention sinks")));
}

TEST(ModelFamiliesTest, ReadsLlama4InsideItsTextConfig) {
  const std::string text = LocalExpertsConfig(
      "llama4_text", R"("intermediate_size_mlp": 128, "interleave_moe_layer_step": 2,
                        "use_qk_norm": true, "attention_chunk_size": 8192)");
  const Model model = Read(R"({"model_type": "llama4", "architectures": ["Llama4"], )"
                           R"("vision_config": {}, "text_config": )" +
                           text + "}");
  EXPECT_EQ(model.model_type, "llama4_text");
  EXPECT_EQ(model.architecture, "Llama4");
  EXPECT_THAT(model.layer_kinds, ElementsAre(kDense, kMoe, kDense, kMoe));
  EXPECT_EQ(model.dense_intermediate_size, 128);
  EXPECT_EQ(model.shared_intermediate_size, 64);
  EXPECT_EQ(model.router, (RouterDims{.scoring = RouterScoring::kSigmoid}));
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("attention_chunk_size: 8192")));
  EXPECT_THAT(model.not_modelled, Contains(HasSubstr("vision_config")));
}

TEST(ModelFamiliesTest, RefusesModelsWithoutExperts) {
  EXPECT_THAT(ErrorOf(R"({"model_type": "llama", "hidden_size": 4096})"),
              HasSubstr("lastflop is for models with experts"));
  EXPECT_THAT(ErrorOf(QwenConfig("qwen3_moe", R"("mlp_only_layers": [0, 1, 2, 3])")),
              HasSubstr("no layer of the model has experts"));
}

TEST(ModelFamiliesTest, RefusesLinearAttentionAndUnknownFamilies) {
  EXPECT_THAT(ErrorOf(QwenConfig("qwen3_next", R"("full_attention_interval": 4)")),
              HasSubstr("full_attention_interval: layers of linear attention"));
  EXPECT_THAT(ErrorOf(LocalExpertsConfig("minimax", R"("attn_type_list": [0, 0, 0, 1])")),
              HasSubstr("attn_type_list with linear layers"));
  EXPECT_THAT(ErrorOf(QwenConfig("qwen9_moe")),
              HasSubstr("\"qwen9_moe\" is not known; known are deepseek_v2,"));
}

TEST(ModelFamiliesTest, RefusesGroupsThatCannotHoldTheChoice) {
  EXPECT_THAT(ErrorOf(DeepseekConfig("deepseek_v3", R"("n_group": 3, "topk_group": 1)")),
              HasSubstr("n_group: 3: must divide the 16 experts"));
  EXPECT_THAT(ErrorOf(DeepseekConfig("deepseek_v3", R"("n_group": 16, "topk_group": 1)")),
              HasSubstr("topk_group: 1 groups of 1 experts: fewer than the 2"));
}

// The published sizes, from the files that campaigns name.
struct Published {
  const char* file;
  double billion_weights;  // As the publisher counts them, without multi-token prediction.
  double gib;              // Of the published checkpoint; 0 where the file has no quantization.
};

TEST(ModelFamiliesTest, AddsUpToThePublishedNumberOfWeights) {
  for (const auto& [file, billion_weights, gib] : {
           Published{"deepseek-v3", 671, 0},
           Published{"glm-5-nvfp4", 744, 0},
           Published{"gpt-oss-120b", 117, 61},
           Published{"kimi-k2.5", 1026, 553},
           Published{"llama-4-maverick", 400, 0},
           Published{"llama-4-scout", 108, 0},
           Published{"minimax-m2.5", 230, 0},
           Published{"mixtral-8x7b", 46.7, 0},
           Published{"qwen3-235b-a22b", 235, 0},
           Published{"qwen3-30b-a3b", 30.5, 0},
       }) {
    SCOPED_TRACE(file);
    absl::StatusOr<Model> model =
        ReadModelFile(std::string("experiments/models/") + file + ".json");
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->name, file);
    if (gib > 0) {
      EXPECT_NEAR(ModelBytes(*model) / (1 << 30), gib, gib * 0.01);
    }
    // One format for all: then bytes are weights.
    for (WeightStorage* const storage : {&model->experts, &model->shared, &model->dense,
                                         &model->attention_weights, &model->lm_head}) {
      *storage = {};
    }
    EXPECT_NEAR(ModelBytes(*model) / 2e9, billion_weights, billion_weights * 0.01);
  }
}

TEST(ModelFamiliesTest, ReadsEveryModelInExperiments) {
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator("experiments/models")) {
    const absl::StatusOr<Model> model = ReadModelFile(entry.path().string());
    EXPECT_TRUE(model.ok()) << model.status();
    ++num_models;
  }
  EXPECT_GE(num_models, 11);
}

}  // namespace
}  // namespace lastflop
