#include "spec/deepseek_families.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spec/family_parts.h"
#include "spec/model_rules.h"

namespace lastflop {
namespace {

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
        fields.AssumeSize("n_shared_experts", usual.num_shared_experts, kFamilyDefault, 0, 1024);
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
                                                kFamilyDefault, 0, model.num_layers);
  const int64_t frequency =
      usual.names_the_way ? fields.AssumeSize("moe_layer_freq", 1, kFamilyDefault, 1, kMaxLayers)
                          : fields.SizeOr("moe_layer_freq", 1, 1, kMaxLayers);
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool has_experts = layer >= num_leading && layer % frequency == 0;
    model.layer_kinds.push_back(has_experts ? LayerKind::kMoe : LayerKind::kDense);
  }
}

void ReadGroups(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  RouterDims& router = model.router;
  router.num_groups =
      fields.AssumeSize("n_group", usual.num_groups, kFamilyDefault, 1, kMaxExperts);
  router.top_k_groups =
      fields.AssumeSize("topk_group", std::min(usual.top_k_groups, router.num_groups),
                        kFamilyDefault, 1, kMaxExperts);
  const std::string groups_problem = NumGroupsProblem(router.num_groups, model.num_experts);
  const std::string chosen_problem =
      groups_problem.empty() ? TopKGroupsProblem(router, model.top_k, model.num_experts) : "";
  // A mistake that only a number taken as usual makes is that the file does not say it.
  const std::string& problem = groups_problem.empty() ? chosen_problem : groups_problem;
  if (!problem.empty() && !fields.Has("n_group")) {
    fields.Fail("n_group", absl::StrCat("is missing, and ", usual.num_groups, ", ", kFamilyDefault,
                                        ", does not fit: ", problem));
  }
  Require(fields, "n_group", groups_problem);
  Require(fields, "topk_group", chosen_problem);
}

// Softmax or sigmoid, a correction bias for the choice or none, experts in groups or not: the ways
// of DeepSeek, of which others have one.
void ReadDeepseekRouter(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  const auto word = [&](absl::string_view key, absl::string_view fallback) {
    return usual.names_the_way ? fields.AssumeString(key, fallback, kFamilyDefault)
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
  router.renormalize = fields.AssumeBool("norm_topk_prob", usual.renormalize, kFamilyDefault);
  router.scaling_factor =
      fields.AssumeNumber("routed_scaling_factor", usual.scaling_factor, kFamilyDefault);
}

void ReadDeepseekFfn(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  ReadExperts(fields, "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size", model);
  ReadSharedExperts(fields, usual, model);
  ReadLeadingDenseLayers(fields, usual, model);
  ReadDenseWidth(fields, "intermediate_size", model);
  ReadDeepseekRouter(fields, usual, model);
}

void ReadMlaModel(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  AttentionDims& attention = model.attention;
  attention.kind = AttentionKind::kMla;
  if (!fields.BoolOr("use_mla", true)) {
    fields.Fail("use_mla", "false: this family is modelled with latent attention only");
  }
  attention.num_heads = fields.Size("num_attention_heads", 1, 65536);
  if (!fields.IsNull("q_lora_rank")) {  // null: the query is projected in one product.
    attention.q_lora_rank =
        fields.AssumeSize("q_lora_rank", usual.q_lora_rank, kFamilyDefault, 1, kMaxWidth);
  }
  attention.kv_lora_rank = fields.Size("kv_lora_rank", 1, kMaxWidth);
  attention.qk_nope_head_dim = fields.Size("qk_nope_head_dim", 1, 65536);
  attention.qk_rope_head_dim = fields.Size("qk_rope_head_dim", 1, 65536);
  attention.v_head_dim = fields.Size("v_head_dim", 1, 65536);
  attention.rotary_dim = attention.qk_rope_head_dim;
  Require(fields, "qk_rope_head_dim", RotaryDimProblem(attention.rotary_dim));
  attention.bias = fields.AssumeBool("attention_bias", usual.attention_bias, kFamilyDefault);
  ReadDeepseekFfn(fields, usual, model);
  if (fields.Has("index_topk")) {
    model.not_modelled.push_back(
        absl::StrCat(fields.PathTo("index_topk"), ": ", fields.SizeOr("index_topk", 0, 1, 1 << 30),
                     ", the sparse-attention indexer: attention reads the whole context"));
  }
}

void ReadGlm4Family(ConfigFields& fields, const DeepseekDefaults& usual, Model& model) {
  ReadGqa(fields, {}, model);
  AttentionDims& attention = model.attention;
  const std::optional<double> share = RotaryShare(fields);
  attention.rotary_dim = RotaryDim(
      model, share.has_value() ? *share
                               : fields.AssumeNumber("partial_rotary_factor", 0.5, kFamilyDefault));
  attention.bias = fields.AssumeBool("attention_bias", usual.attention_bias, kFamilyDefault);
  ReadDeepseekFfn(fields, usual, model);
}

}  // namespace

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

void ReadGlmMoeDsa(ConfigFields& fields, Model& model) {
  ReadMlaModel(
      fields,
      {.q_lora_rank = 2048, .num_leading_dense = 3, .scaling_factor = 2.5, .names_the_way = true},
      model);
}

void ReadGlm4MoeLite(ConfigFields& fields, Model& model) {
  ReadMlaModel(fields, {.q_lora_rank = 768, .scaling_factor = 1.8}, model);
}

void ReadGlm4Moe(ConfigFields& fields, Model& model) {
  ReadGlm4Family(fields, {}, model);
  model.attention.qk_norm = fields.AssumeBool("use_qk_norm", false, kFamilyDefault);
}

void ReadGlm4vMoe(ConfigFields& fields, Model& model) {
  ReadGlm4Family(fields, {.attention_bias = true}, model);
  model.attention.qk_norm = fields.BoolOr("use_qk_norm", false);
}

}  // namespace lastflop
