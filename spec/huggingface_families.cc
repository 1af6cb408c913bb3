#include "spec/huggingface_families.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "spec/model_rules.h"

namespace lastflop {
namespace {

constexpr absl::string_view kUsual = "the family's default";

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

// What a family takes where its config is silent: the defaults of its published configuration.
struct DeepseekDefaults {
  int64_t q_lora_rank = 0;
  int64_t num_shared_experts = 1;
  int64_t num_leading_dense = 1;
  int64_t num_groups = 1;
  int64_t top_k_groups = 1;
  bool renormalize = true;
  double scaling_factor = 1;
  bool attention_bias = false;
  absl::string_view scoring = "sigmoid";
  absl::string_view top_k_method = "noaux_tc";
  // Whether its configs say scoring_func, topk_method and moe_layer_freq: others have one way only.
  bool names_the_way = false;
};

// `n_shared_experts` experts of the routed ones' width, as one FFN. null says that there are none.
void ReadSharedExperts(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  if (!fields.IsNull("n_shared_experts")) {
    model.num_shared_experts =
        fields.AssumeSize("n_shared_experts", usual.num_shared_experts, kUsual, 0, 1024);
  }
  model.shared_intermediate_size = model.num_shared_experts * model.moe_intermediate_size;
}

// Newer configs list every layer as dense or sparse.
void ReadListedLayers(ConfigFields& fields, Model& model) {
  const std::vector<std::string> kinds = fields.StringList("mlp_layer_types");
  for (const std::string& kind : kinds) {
    if (kind != "dense" && kind != "sparse") {
      fields.Fail("mlp_layer_types",
                  absl::StrCat("has \"", kind, "\": each must be dense or sparse"));
    }
    model.layer_kinds.push_back(kind == "dense" ? LayerKind::kDense : LayerKind::kMoe);
  }
  if (fields.status().ok() && std::ssize(kinds) != model.num_layers) {
    fields.Fail("mlp_layer_types",
                absl::StrCat("has ", kinds.size(), " layers: the model has ", model.num_layers));
  }
}

// The first `first_k_dense_replace` layers are dense, and of the others every `moe_layer_freq`-th
// has experts.
void ReadLeadingDenseLayers(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  if (fields.Has("mlp_layer_types")) {
    ReadListedLayers(fields, model);
    return;
  }
  const int64_t num_leading = fields.AssumeSize("first_k_dense_replace",
                                                std::min(usual.num_leading_dense, model.num_layers),
                                                kUsual, 0, model.num_layers);
  const int64_t frequency = usual.names_the_way
                                ? fields.AssumeSize("moe_layer_freq", 1, kUsual, 1, kMaxLayers)
                                : fields.SizeOr("moe_layer_freq", 1, 1, kMaxLayers);
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

struct GqaDefaults {
  int64_t num_kv_heads = 8;
  int64_t head_dim = 0;  // 0: the width over the heads.
};

// The heads of keys and values. null, and a default that does not divide the query heads, say that
// there is one for each of them.
void ReadKvHeads(ConfigFields& fields, const GqaDefaults& usual, AttentionDims& attention) {
  const bool takes_usual =
      !fields.IsNull("num_key_value_heads") && attention.num_heads % usual.num_kv_heads == 0;
  attention.num_kv_heads = fields.AssumeSize(
      "num_key_value_heads", takes_usual ? usual.num_kv_heads : attention.num_heads,
      takes_usual ? kUsual : "one per query head", 1, attention.num_heads);
  Require(fields, "num_key_value_heads",
          KvHeadsProblem(attention.num_kv_heads, attention.num_heads));
}

void ReadGqa(ConfigFields& fields, const GqaDefaults& usual, Model& model) {
  AttentionDims& attention = model.attention;
  attention.kind = AttentionKind::kGqa;
  attention.num_heads = fields.Size("num_attention_heads", 1, 65536);
  ReadKvHeads(fields, usual, attention);
  if (usual.head_dim > 0) {
    attention.head_dim = fields.AssumeSize("head_dim", usual.head_dim, kUsual, 1, 65536);
  } else {
    if (!fields.Has("head_dim") && model.hidden_size % attention.num_heads != 0) {
      fields.Fail("num_attention_heads",
                  absl::StrCat(attention.num_heads, ": must divide hidden_size=", model.hidden_size,
                               " where head_dim is not given"));
    }
    attention.head_dim = fields.AssumeSize("head_dim", model.hidden_size / attention.num_heads,
                                           "hidden_size / num_attention_heads", 1, 65536);
  }
  attention.rotary_dim = attention.head_dim;
}

// The share of a head that is rotated, where the config or its rope_parameters say it.
std::optional<double> RotaryShare(ConfigFields& fields) {
  constexpr absl::string_view kKey = "partial_rotary_factor";
  if (fields.Has(kKey)) {
    return fields.NumberOr(kKey, 1);
  }
  const ConfigValue* const value = fields.FindValue("rope_parameters");
  if (value == nullptr || value->Find(kKey) == nullptr) {
    return std::nullopt;
  }
  ConfigFields rope = fields.Inside("rope_parameters", *value);
  const double share = rope.NumberOr(kKey, 1);
  fields.Adopt(rope.status());
  return share;
}

int64_t RotaryDim(const Model& model, double share) {
  return static_cast<int64_t>(static_cast<double>(model.attention.head_dim) * std::min(share, 1.0));
}

void ReadScoring(ConfigFields& fields, const std::string& scoring, RouterDims& router) {
  const std::optional<RouterScoring> known = FromWord<RouterScoring>(scoring);
  if (!known.has_value()) {
    fields.Fail("scoring_func",
                absl::StrCat("\"", scoring, "\": must be one of ", AllWords<RouterScoring>()));
  }
  router.scoring = known.value_or(RouterScoring::kSoftmax);
}

void ReadGroups(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  RouterDims& router = model.router;
  router.num_groups = fields.AssumeSize("n_group", usual.num_groups, kUsual, 1, kMaxExperts);
  router.top_k_groups = fields.AssumeSize(
      "topk_group", std::min(usual.top_k_groups, router.num_groups), kUsual, 1, kMaxExperts);
  const std::string groups_problem = NumGroupsProblem(router.num_groups, model.num_experts);
  const std::string chosen_problem =
      groups_problem.empty() ? TopKGroupsProblem(router, model.top_k, model.num_experts) : "";
  // A mistake that only a number taken as usual makes is that the file does not say it.
  const std::string& problem = groups_problem.empty() ? chosen_problem : groups_problem;
  if (!problem.empty() && !fields.Has("n_group")) {
    fields.Fail("n_group", absl::StrCat("is missing, and ", usual.num_groups, ", ", kUsual,
                                        ", does not fit: ", problem));
  }
  Require(fields, "n_group", groups_problem);
  Require(fields, "topk_group", chosen_problem);
}

// Softmax or sigmoid, a correction bias for the choice or none, experts in groups or not: the ways
// of DeepSeek, of which others have one.
void ReadDeepseekRouter(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  const auto word = [&](absl::string_view key, absl::string_view fallback) {
    return usual.names_the_way ? fields.AssumeString(key, fallback, kUsual)
                               : fields.StringOr(key, fallback);
  };
  RouterDims& router = model.router;
  ReadScoring(fields, word("scoring_func", usual.scoring), router);
  const std::string method = word("topk_method", usual.top_k_method);
  router.has_bias = method == "noaux_tc";
  if (method == "noaux_tc" || method == "group_limited_greedy") {
    ReadGroups(fields, usual, model);
  } else if (method != "greedy" && method != "gready") {  // Both are published.
    fields.Fail("topk_method", absl::StrCat("\"", method,
                                            "\": must be one of greedy, group_limited_greedy, "
                                            "noaux_tc"));
  }
  router.renormalize = fields.AssumeBool("norm_topk_prob", usual.renormalize, kUsual);
  router.scaling_factor =
      fields.AssumeNumber("routed_scaling_factor", usual.scaling_factor, kUsual);
}

void ReadDeepseekFfn(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  ReadExperts(fields, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  ReadSharedExperts(fields, usual, model);
  ReadLeadingDenseLayers(fields, usual, model);
  ReadDenseWidth(fields, "intermediate_size", model);
  ReadDeepseekRouter(fields, usual, model);
}

// ---- One function a family ----------------------------------------------------------------------

void ReadMlaModel(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  AttentionDims& attention = model.attention;
  attention.kind = AttentionKind::kMla;
  if (!fields.BoolOr("use_mla", true)) {
    fields.Fail("use_mla", "false: this family is modelled with latent attention only");
  }
  attention.num_heads = fields.Size("num_attention_heads", 1, 65536);
  if (!fields.IsNull("q_lora_rank")) {  // null: the query is projected in one product.
    attention.q_lora_rank =
        fields.AssumeSize("q_lora_rank", usual.q_lora_rank, kUsual, 1, kMaxWidth);
  }
  attention.kv_lora_rank = fields.Size("kv_lora_rank", 1, kMaxWidth);
  attention.qk_nope_head_dim = fields.Size("qk_nope_head_dim", 1, 65536);
  attention.qk_rope_head_dim = fields.Size("qk_rope_head_dim", 1, 65536);
  attention.v_head_dim = fields.Size("v_head_dim", 1, 65536);
  attention.rotary_dim = attention.qk_rope_head_dim;
  Require(fields, "qk_rope_head_dim", RotaryDimProblem(attention.rotary_dim));
  attention.bias = fields.AssumeBool("attention_bias", usual.attention_bias, kUsual);
  ReadDeepseekFfn(fields, usual, model);
  if (fields.Has("index_topk")) {
    model.not_modelled.push_back(
        absl::StrCat(fields.PathTo("index_topk"), ": ", fields.SizeOr("index_topk", 0, 1, 1 << 30),
                     ", the sparse-attention indexer: attention reads the whole context"));
  }
}

void ReadDeepseekV2(ConfigFields& fields, Model& model) {
  ReadMlaModel(fields,
               {.q_lora_rank = 1536,
                .num_shared_experts = 2,
                .num_leading_dense = 0,
                .renormalize = false,
                .scoring = "softmax",
                .top_k_method = "greedy",
                .names_the_way = true},
               model);
}

void ReadDeepseekV3(ConfigFields& fields, Model& model) {
  ReadMlaModel(fields,
               {.q_lora_rank = 1536,
                .num_leading_dense = 3,
                .num_groups = 8,
                .top_k_groups = 4,
                .scaling_factor = 2.5,
                .names_the_way = true},
               model);
}

// GLM-5
void ReadGlmMoeDsa(ConfigFields& fields, Model& model) {
  ReadMlaModel(
      fields,
      {.q_lora_rank = 2048, .num_leading_dense = 3, .scaling_factor = 2.5, .names_the_way = true},
      model);
}

// GLM-4.7-Flash
void ReadGlm4MoeLite(ConfigFields& fields, Model& model) {
  ReadMlaModel(fields, {.q_lora_rank = 768, .scaling_factor = 1.8}, model);
}

void ReadGlm4Family(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  ReadGqa(fields, {}, model);
  AttentionDims& attention = model.attention;
  const std::optional<double> share = RotaryShare(fields);
  attention.rotary_dim = RotaryDim(
      model,
      share.has_value() ? *share : fields.AssumeNumber("partial_rotary_factor", 0.5, kUsual));
  attention.bias = fields.AssumeBool("attention_bias", usual.attention_bias, kUsual);
  ReadDeepseekFfn(fields, usual, model);
}

void ReadGlm4Moe(ConfigFields& fields, Model& model) {
  ReadGlm4Family(fields, {}, model);
  model.attention.qk_norm = fields.AssumeBool("use_qk_norm", false, kUsual);
}

// The language model of GLM-4.5V.
void ReadGlm4vMoe(ConfigFields& fields, Model& model) {
  ReadGlm4Family(fields, {.attention_bias = true}, model);
  model.attention.qk_norm = fields.BoolOr("use_qk_norm", false);
}

// A layer has experts where it is the last of `decoder_sparse_step` and not listed as dense.
void ReadQwenLayers(ConfigFields& fields, Model& model) {
  const int64_t step = fields.AssumeSize("decoder_sparse_step", 1, kUsual, 1, kMaxLayers);
  const std::vector<int64_t> dense = fields.SizeList("mlp_only_layers", 0, model.num_layers - 1);
  if (!fields.Has("mlp_only_layers")) {
    model.assumed.push_back(absl::StrCat("mlp_only_layers: none, ", kUsual));
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
  model.attention.bias = fields.AssumeBool("qkv_bias", true, kUsual);
  ReadExperts(fields, "num_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  model.shared_intermediate_size =
      fields.AssumeSize("shared_expert_intermediate_size", 5632, kUsual, 0, kMaxWidth);
  model.num_shared_experts = model.shared_intermediate_size > 0 ? 1 : 0;
  if (model.num_shared_experts > 0) {
    model.not_modelled.push_back(
        "shared_expert_gate: one product per token that scales the shared expert");
  }
  model.router.renormalize = fields.AssumeBool("norm_topk_prob", false, kUsual);
  ReadQwenLayers(fields, model);
}

void ReadQwen3Moe(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {.num_kv_heads = 4}, model);
  model.attention.qk_norm = true;
  model.attention.bias = fields.AssumeBool("attention_bias", false, kUsual);
  ReadExperts(fields, "num_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  model.router.renormalize = fields.AssumeBool("norm_topk_prob", false, kUsual);
  ReadQwenLayers(fields, model);
}

void ReadMiniMaxM2(ConfigFields& fields, Model& model) {
  ReadGqa(fields, {.head_dim = 128}, model);
  AttentionDims& attention = model.attention;
  const std::optional<double> share = RotaryShare(fields);
  if (fields.Has("rotary_dim") || !share.has_value()) {
    attention.rotary_dim =
        fields.AssumeSize("rotary_dim", attention.head_dim, kUsual, 1, attention.head_dim);
  } else {
    attention.rotary_dim = RotaryDim(model, *share);
  }
  attention.qk_norm = fields.AssumeBool("use_qk_norm", true, kUsual);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  model.shared_intermediate_size = fields.SizeOr("shared_intermediate_size", 0, 0, kMaxWidth);
  model.num_shared_experts = model.shared_intermediate_size > 0 ? 1 : 0;
  ReadAllExpertLayers(model);
  RouterDims& router = model.router;
  ReadScoring(fields, fields.AssumeString("scoring_func", "sigmoid", kUsual), router);
  router.has_bias = fields.AssumeBool("use_routing_bias", true, kUsual);
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
  model.attention.bias = fields.AssumeBool("attention_bias", true, kUsual);
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
  attention.bias = fields.AssumeBool("attention_bias", false, kUsual);
  attention.qk_norm = fields.AssumeBool("use_qk_norm", true, kUsual);
  ReadExperts(fields, "num_local_experts", "num_experts_per_tok", "intermediate_size", model);
  model.num_shared_experts = 1;
  model.shared_intermediate_size = model.moe_intermediate_size;
  model.router.scoring = RouterScoring::kSigmoid;

  const int64_t step =
      fields.Has("moe_layers")
          ? fields.SizeOr("interleave_moe_layer_step", 1, 1, kMaxLayers)
          : fields.AssumeSize("interleave_moe_layer_step", 1, kUsual, 1, kMaxLayers);
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
