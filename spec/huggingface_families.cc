#include "spec/huggingface_families.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spec/deepseek_families.h"
#include "spec/family_parts.h"
#include "spec/model_rules.h"

namespace lastflop {
namespace {

// A layer has experts where it is the last of `decoder_sparse_step` and not listed as dense.
void ReadQwenLayers(ConfigFields& fields, Model& model) {
  const int64_t step = fields.AssumeSize("decoder_sparse_step", 1, kFamilyDefault, 1, kMaxLayers);
  const std::vector<int64_t> dense = fields.SizeList("mlp_only_layers", 0, model.num_layers - 1);
  if (!fields.Has("mlp_only_layers")) {
    model.assumed.push_back(absl::StrCat("mlp_only_layers: none, ", kFamilyDefault));
  }
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool is_listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    const bool has_experts = !is_listed && (layer + 1) % step == 0;
    model.layer_kinds.push_back(has_experts ? LayerKind::kMoe : LayerKind::kDense);
  }
  ReadDenseWidth(fields, "intermediate_size", model);
}

void ReadQwen2Moe(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {.num_kv_heads = 16}, model);
  model.attention.bias = fields.AssumeBool("qkv_bias", true, kFamilyDefault);
  ReadExperts(fields, "num_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  model.shared_intermediate_size =
      fields.AssumeSize("shared_expert_intermediate_size", 5632, kFamilyDefault, 0, kMaxWidth);
  model.num_shared_experts = model.shared_intermediate_size > 0 ? 1 : 0;
  if (model.num_shared_experts > 0) {
    model.not_modelled.push_back(
        "shared_expert_gate: one product per token that scales the shared expert");
  }
  model.router.renormalize = fields.AssumeBool("norm_topk_prob", false, kFamilyDefault);
  ReadQwenLayers(fields, model);
}

void ReadQwen3Moe(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {.num_kv_heads = 4}, model);
  model.attention.qk_norm = true;
  model.attention.bias = fields.AssumeBool("attention_bias", false, kFamilyDefault);
  ReadExperts(fields, "num_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  model.router.renormalize = fields.AssumeBool("norm_topk_prob", false, kFamilyDefault);
  ReadQwenLayers(fields, model);
}

void ReadMiniMaxM2(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {.head_dim = 128}, model);
  AttentionDims& attention = model.attention;
  const std::optional<double> share = RotaryShare(fields);
  if (fields.Has("rotary_dim") || !share.has_value()) {
    attention.rotary_dim =
        fields.AssumeSize("rotary_dim", attention.head_dim, kFamilyDefault, 1, attention.head_dim);
  } else {
    attention.rotary_dim = RotaryDim(model, *share);
  }
  attention.qk_norm = fields.AssumeBool("use_qk_norm", true, kFamilyDefault);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  model.shared_intermediate_size = fields.SizeOr("shared_intermediate_size", 0, 0, kMaxWidth);
  model.num_shared_experts = model.shared_intermediate_size > 0 ? 1 : 0;
  ReadAllExpertLayers(model);
  RouterDims& router = model.router;
  ReadScoring(fields, fields.AssumeString("scoring_func", "sigmoid", kFamilyDefault), router);
  router.has_bias = fields.AssumeBool("use_routing_bias", true, kFamilyDefault);
  router.renormalize = true;
}

void ReadMixtral(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {}, model);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  ReadAllExpertLayers(model);
  model.router.renormalize = true;
}

void ReadGptOss(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {.head_dim = 64}, model);
  model.attention.bias = fields.AssumeBool("attention_bias", true, kFamilyDefault);
  ReadExperts(fields, fields.FirstOf({"num_local_experts", "num_experts"}),
              fields.FirstOf({"num_experts_per_tok", "experts_per_token"}), "intermediate_size",
              model);
  ReadAllExpertLayers(model);
  model.router.softmax_after_top_k = true;
  model.not_modelled.push_back("attention sinks: one logit per head more in the softmax");
  model.not_modelled.push_back("biases of experts and router");
  model.not_modelled.push_back("clamped SwiGLU: run as plain SwiGLU");
}

void ReadLlama4(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {.head_dim = 128}, model);
  AttentionDims& attention = model.attention;
  attention.bias = fields.AssumeBool("attention_bias", false, kFamilyDefault);
  attention.qk_norm = fields.AssumeBool("use_qk_norm", true, kFamilyDefault);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  model.num_shared_experts = 1;
  model.shared_intermediate_size = model.moe_intermediate_size;
  model.router.scoring = RouterScoring::kSigmoid;

  const int64_t step =
      fields.Has("moe_layers")
          ? fields.SizeOr("interleave_moe_layer_step", 1, 1, kMaxLayers)
          : fields.AssumeSize("interleave_moe_layer_step", 1, kFamilyDefault, 1, kMaxLayers);
  const std::vector<int64_t> listed = fields.SizeList("moe_layers", 0, model.num_layers - 1);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool has_experts = fields.Has("moe_layers")
                                 ? std::find(listed.begin(), listed.end(), layer) != listed.end()
                                 : (layer + 1) % step == 0;
    model.layer_kinds.push_back(has_experts ? LayerKind::kMoe : LayerKind::kDense);
  }
  ReadDenseWidth(fields, "intermediate_size_mlp", model);
  if (fields.Has("attention_chunk_size")) {
    model.not_modelled.push_back(
        absl::StrCat(fields.PathTo("attention_chunk_size"), ": ",
                     fields.SizeOr("attention_chunk_size", 0, 1, 1 << 30),
                     ", chunked attention: every layer attends to the whole context"));
  }
  model.not_modelled.push_back("layers without rotary embedding: every layer is rotated");
}

constexpr ModuleNames kSharedExpert = {.shared = "shared_expert"};
constexpr ModuleNames kMixtralNames = {.ffn = "block_sparse_moe",
                                       .projections = {"w1", "w2", "w3"}};
constexpr ModuleNames kLlama4Names = {.ffn = "feed_forward", .shared = "shared_expert"};

constexpr ModelFamily kFamilies[] = {
    {"deepseek_v2", &ReadDeepseekV2, {}},
    {"deepseek_v3", &ReadDeepseekV3, {}},
    {"deepseek_v32", &ReadDeepseekV3, {}},
    {"glm4_moe", &ReadGlm4Moe, {}},
    {"glm4_moe_lite", &ReadGlm4MoeLite, {}},
    {"glm4v_moe_text", &ReadGlm4vMoe, {}},
    {"glm_moe_dsa", &ReadGlmMoeDsa, {}},
    {"gpt_oss", &ReadGptOss, {}, 150000},
    {"kimi_k2", &ReadDeepseekV3, {}},
    {"llama4_text", &ReadLlama4, kLlama4Names, 500000},
    {"minimax_m2", &ReadMiniMaxM2, kMixtralNames, 5000000},
    {"mixtral", &ReadMixtral, kMixtralNames, 1000000},
    {"qwen2_moe", &ReadQwen2Moe, kSharedExpert},
    {"qwen3_moe", &ReadQwen3Moe, {}},
    {"qwen3_omni_moe_text", &ReadQwen3Moe, {}},
    {"qwen3_vl_moe_text", &ReadQwen3Moe, {}},
};

// What stands around a language model, and which one where that says no type of its own.
constexpr std::pair<absl::string_view, absl::string_view> kAround[] = {
    {"deepseek_vl_v2", "deepseek_v2"},
    {"glm4v_moe", "glm4v_moe_text"},
    {"kimi_k25", "kimi_k2"},
    {"kimi_vl", "deepseek_v3"},
    {"llama4", "llama4_text"},
    {"qwen3_omni_moe", "qwen3_omni_moe_text"},
    {"qwen3_vl_moe", "qwen3_vl_moe_text"},
};

}  // namespace

const ModelFamily* FindModelFamily(absl::string_view model_type) {
  for (const auto& [around, inside] : kAround) {
    if (around == model_type) {
      return FindModelFamily(inside);
    }
  }
  const ModelFamily* const found =
      std::find_if(std::begin(kFamilies), std::end(kFamilies),
                   [&](const ModelFamily& family) { return family.model_type == model_type; });
  return found != std::end(kFamilies) ? found : nullptr;
}

std::string AllModelTypes() {
  return absl::StrJoin(kFamilies, ", ", [](std::string* out, const ModelFamily& family) {
    absl::StrAppend(out, family.model_type);
  });
}

}  // namespace lastflop
