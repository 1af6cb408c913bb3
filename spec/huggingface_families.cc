#include "spec/huggingface_families.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spec/model_rules.h"

namespace lastflop {
namespace {

// An error at `key` where there is a problem.
void Require(ConfigFields& fields, absl::string_view key, const std::string& problem) {
  if (!problem.empty()) {
    fields.Fail(key, problem);
  }
}

// ---- Parts that several families share ----------------------------------------------------------

void ReadExperts(ConfigFields& fields, absl::string_view num_experts_key,
                 absl::string_view top_k_key, absl::string_view width_key, Model& model) {
  model.num_experts = fields.Size(num_experts_key, 1, kMaxExperts);
  model.top_k = fields.Size(top_k_key, 1, kMaxExperts);
  model.moe_intermediate_size = fields.Size(width_key, 1, kMaxWidth);
  Require(fields, top_k_key, TopKProblem(model.top_k, model.num_experts));
}

// `num_shared_experts` experts of the routed ones' width, as one FFN.
void ReadSharedExperts(ConfigFields& fields, Model& model) {
  model.num_shared_experts = fields.SizeOr("n_shared_experts", 0, 0, 1024);
  model.shared_intermediate_size = model.num_shared_experts * model.moe_intermediate_size;
}

// The first `first_k_dense_replace` layers are dense, and of the others every `moe_layer_freq`-th
// has experts.
void ReadLeadingDenseLayers(ConfigFields& fields, Model& model) {
  const int64_t num_leading = fields.SizeOr("first_k_dense_replace", 0, 0, model.num_layers);
  const int64_t frequency = fields.SizeOr("moe_layer_freq", 1, 1, kMaxLayers);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool has_experts = layer >= num_leading && layer % frequency == 0;
    model.layer_kinds.push_back(has_experts ? LayerKind::kMoe : LayerKind::kDense);
  }
}

void ReadDenseWidth(ConfigFields& fields, absl::string_view key, Model& model) {
  if (model.num_dense_layers() > 0) {
    model.dense_intermediate_size = fields.Size(key, 1, kMaxWidth);
  }
}

void ReadAllExpertLayers(Model& model) {
  model.layer_kinds.assign(static_cast<size_t>(model.num_layers), LayerKind::kMoe);
}

void ReadGqa(ConfigFields& fields, Model& model) {
  AttentionDims& attention = model.attention;
  attention.kind = AttentionKind::kGqa;
  attention.num_heads = fields.Size("num_attention_heads", 1, 65536);
  attention.num_kv_heads = fields.AssumeSize("num_key_value_heads", attention.num_heads,
                                             "one per query head", 1, attention.num_heads);
  Require(fields, "num_key_value_heads",
          KvHeadsProblem(attention.num_kv_heads, attention.num_heads));
  if (!fields.Has("head_dim") && model.hidden_size % attention.num_heads != 0) {
    fields.Fail("num_attention_heads",
                absl::StrCat(attention.num_heads, ": must divide hidden_size=", model.hidden_size,
                             " where head_dim is not given"));
  }
  attention.head_dim = fields.AssumeSize("head_dim", model.hidden_size / attention.num_heads,
                                         "hidden_size / num_attention_heads", 1, 65536);
  attention.rotary_dim = attention.head_dim;
}

// A sigmoid router with a correction bias for the choice: what DeepSeek-V3 brought.
void ReadDeepseekRouter(ConfigFields& fields, bool sigmoid_by_default, Model& model) {
  RouterDims& router = model.router;
  const std::string scoring =
      fields.StringOr("scoring_func", sigmoid_by_default ? "sigmoid" : "softmax");
  const std::optional<RouterScoring> known = FromWord<RouterScoring>(scoring);
  if (!known.has_value()) {
    fields.Fail("scoring_func",
                absl::StrCat("\"", scoring, "\": must be one of ", AllWords<RouterScoring>()));
    return;
  }
  router.scoring = *known;
  const std::string method =
      fields.StringOr("topk_method", sigmoid_by_default ? "noaux_tc" : "greedy");
  router.has_bias = method == "noaux_tc";
  const bool has_groups = method == "noaux_tc" || method == "group_limited_greedy";
  if (has_groups) {
    router.num_groups = fields.SizeOr("n_group", 1, 1, model.num_experts);
    router.top_k_groups = fields.SizeOr("topk_group", router.num_groups, 1, router.num_groups);
  } else if (method != "greedy" && method != "gready") {  // Both are published.
    fields.Fail("topk_method", absl::StrCat("\"", method,
                                            "\": must be one of greedy, group_limited_greedy, "
                                            "noaux_tc"));
    return;
  }
  const std::string groups_problem = NumGroupsProblem(router.num_groups, model.num_experts);
  Require(fields, "n_group", groups_problem);
  if (groups_problem.empty()) {
    Require(fields, "topk_group", TopKGroupsProblem(router, model.top_k, model.num_experts));
  }
  router.renormalize = fields.BoolOr("norm_topk_prob", sigmoid_by_default);
  router.scaling_factor = fields.NumberOr("routed_scaling_factor", 1.0);
}

// ---- One function a family ----------------------------------------------------------------------

void ReadMlaModel(ConfigFields& fields, bool sigmoid_by_default, Model& model) {
  AttentionDims& attention = model.attention;
  attention.kind = AttentionKind::kMla;
  attention.num_heads = fields.Size("num_attention_heads", 1, 65536);
  attention.q_lora_rank = fields.SizeOr("q_lora_rank", 0, 1, kMaxWidth);
  attention.kv_lora_rank = fields.Size("kv_lora_rank", 1, kMaxWidth);
  attention.qk_nope_head_dim = fields.Size("qk_nope_head_dim", 1, 65536);
  attention.qk_rope_head_dim = fields.Size("qk_rope_head_dim", 1, 65536);
  attention.v_head_dim = fields.Size("v_head_dim", 1, 65536);
  attention.rotary_dim = attention.qk_rope_head_dim;
  Require(fields, "qk_rope_head_dim", RotaryDimProblem(attention.rotary_dim));
  attention.bias = fields.BoolOr("attention_bias", false);
  ReadExperts(fields, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  ReadSharedExperts(fields, model);
  ReadLeadingDenseLayers(fields, model);
  ReadDenseWidth(fields, "intermediate_size", model);
  ReadDeepseekRouter(fields, sigmoid_by_default, model);
}

void ReadDeepseekV2(ConfigFields& fields, Model& model) { ReadMlaModel(fields, false, model); }

void ReadDeepseekV3(ConfigFields& fields, Model& model) {
  ReadMlaModel(fields, true, model);
  if (fields.Has("index_topk")) {
    model.not_modelled.push_back(
        absl::StrCat(fields.PathTo("index_topk"), ": ", fields.SizeOr("index_topk", 0, 1, 1 << 30),
                     ", the sparse-attention indexer: attention reads the whole context"));
  }
}

void ReadGlm4Moe(ConfigFields& fields, Model& model) {
  ReadGqa(fields, model);
  AttentionDims& attention = model.attention;
  const double rotary_share = fields.NumberOr("partial_rotary_factor", 0.5);
  attention.rotary_dim =
      static_cast<int64_t>(static_cast<double>(attention.head_dim) * std::min(rotary_share, 1.0));
  attention.qk_norm = fields.BoolOr("use_qk_norm", false);
  attention.bias = fields.BoolOr("attention_bias", false);
  ReadExperts(fields, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  ReadSharedExperts(fields, model);
  ReadLeadingDenseLayers(fields, model);
  ReadDenseWidth(fields, "intermediate_size", model);
  ReadDeepseekRouter(fields, true, model);
}

// A layer has experts where it is the last of `decoder_sparse_step` and not listed as dense.
void ReadQwenLayers(ConfigFields& fields, Model& model) {
  const int64_t step = fields.SizeOr("decoder_sparse_step", 1, 1, kMaxLayers);
  const std::vector<int64_t> dense = fields.SizeList("mlp_only_layers", 0, model.num_layers - 1);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool is_listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    const bool has_experts = !is_listed && (layer + 1) % step == 0;
    model.layer_kinds.push_back(has_experts ? LayerKind::kMoe : LayerKind::kDense);
  }
  ReadDenseWidth(fields, "intermediate_size", model);
}

void ReadQwen2Moe(ConfigFields& fields, Model& model) {
  ReadGqa(fields, model);
  model.attention.bias = fields.BoolOr("qkv_bias", true);
  ReadExperts(fields, "num_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  model.shared_intermediate_size =
      fields.SizeOr("shared_expert_intermediate_size", 0, 0, kMaxWidth);
  model.num_shared_experts = model.shared_intermediate_size > 0 ? 1 : 0;
  if (model.num_shared_experts > 0) {
    model.not_modelled.push_back(
        "shared_expert_gate: one product per token that scales the shared expert");
  }
  model.router.renormalize = fields.BoolOr("norm_topk_prob", false);
  ReadQwenLayers(fields, model);
}

void ReadQwen3Moe(ConfigFields& fields, Model& model) {
  ReadGqa(fields, model);
  model.attention.qk_norm = true;
  model.attention.bias = fields.BoolOr("attention_bias", false);
  ReadExperts(fields, "num_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  model.router.renormalize = fields.BoolOr("norm_topk_prob", false);
  ReadQwenLayers(fields, model);
}

void ReadMiniMaxM2(ConfigFields& fields, Model& model) {
  ReadGqa(fields, model);
  AttentionDims& attention = model.attention;
  attention.rotary_dim = fields.SizeOr("rotary_dim", attention.head_dim, 1, attention.head_dim);
  attention.qk_norm = fields.BoolOr("use_qk_norm", true);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  model.shared_intermediate_size = fields.SizeOr("shared_intermediate_size", 0, 0, kMaxWidth);
  model.num_shared_experts = model.shared_intermediate_size > 0 ? 1 : 0;
  ReadAllExpertLayers(model);
  RouterDims& router = model.router;
  const std::string scoring = fields.StringOr("scoring_func", "sigmoid");
  const std::optional<RouterScoring> known = FromWord<RouterScoring>(scoring);
  if (!known.has_value()) {
    fields.Fail("scoring_func",
                absl::StrCat("\"", scoring, "\": must be one of ", AllWords<RouterScoring>()));
    return;
  }
  router.scoring = *known;
  router.has_bias = fields.BoolOr("use_routing_bias", true);
  router.renormalize = true;
}

void ReadMixtral(ConfigFields& fields, Model& model) {
  ReadGqa(fields, model);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  ReadAllExpertLayers(model);
  model.router.renormalize = true;
}

void ReadGptOss(ConfigFields& fields, Model& model) {
  ReadGqa(fields, model);
  model.attention.bias = fields.BoolOr("attention_bias", true);
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
  ReadGqa(fields, model);
  AttentionDims& attention = model.attention;
  attention.bias = fields.BoolOr("attention_bias", false);
  attention.qk_norm = fields.BoolOr("use_qk_norm", false);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  model.num_shared_experts = 1;
  model.shared_intermediate_size = model.moe_intermediate_size;
  model.router.scoring = RouterScoring::kSigmoid;

  const int64_t step = fields.SizeOr("interleave_moe_layer_step", 1, 1, kMaxLayers);
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
    {"glm4_moe_lite", &ReadDeepseekV3, {}},
    {"glm_moe_dsa", &ReadDeepseekV3, {}},
    {"gpt_oss", &ReadGptOss, {}},
    {"kimi_k2", &ReadDeepseekV3, {}},
    {"llama4_text", &ReadLlama4, kLlama4Names},
    {"minimax_m2", &ReadMiniMaxM2, kMixtralNames},
    {"mixtral", &ReadMixtral, kMixtralNames},
    {"qwen2_moe", &ReadQwen2Moe, kSharedExpert},
    {"qwen3_moe", &ReadQwen3Moe, {}},
    {"qwen3_vl_moe_text", &ReadQwen3Moe, {}},
};

}  // namespace

const ModelFamily* FindModelFamily(absl::string_view model_type) {
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
