#include "spec/family_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "spec/model_rules.h"

namespace lastflop {
namespace {

// The heads of keys and values. null, and a default that does not divide the query heads, say that
// there is one for each of them.
void ReadKvHeads(ConfigFields& fields, const GqaDefaults& usual, AttentionDims& attention) {
  const bool takes_usual =
      !fields.IsNull("num_key_value_heads") && attention.num_heads % usual.num_kv_heads == 0;
  attention.num_kv_heads = fields.AssumeSize(
      "num_key_value_heads", takes_usual ? usual.num_kv_heads : attention.num_heads,
      takes_usual ? kFamilyDefault : "one per query head", 1, attention.num_heads);
  Require(fields, "num_key_value_heads",
          KvHeadsProblem(attention.num_kv_heads, attention.num_heads));
}

}  // namespace

void Require(ConfigFields& fields, absl::string_view key, const std::string& problem) {
  if (!problem.empty()) {
    fields.Fail(key, problem);
  }
}

void ReadExperts(ConfigFields& fields, absl::string_view num_experts_key,
                 absl::string_view top_k_key, absl::string_view width_key, Model& model) {
  model.num_experts = fields.Size(num_experts_key, 1, kMaxExperts);
  model.top_k = fields.Size(top_k_key, 1, kMaxExperts);
  model.moe_intermediate_size = fields.Size(width_key, 1, kMaxWidth);
  Require(fields, top_k_key, TopKProblem(model.top_k, model.num_experts));
}

void ReadDenseWidth(ConfigFields& fields, absl::string_view key, Model& model) {
  if (model.num_dense_layers() > 0) {
    model.dense_intermediate_size = fields.Size(key, 1, kMaxWidth);
  }
}

void ReadAllExpertLayers(Model& model) {
  model.layer_kinds.assign(static_cast<size_t>(model.num_layers), LayerKind::kMoe);
}

void ReadGqa(ConfigFields& fields, const GqaDefaults& usual, Model& model) {
  AttentionDims& attention = model.attention;
  attention.kind = AttentionKind::kGqa;
  attention.num_heads = fields.Size("num_attention_heads", 1, 65536);
  ReadKvHeads(fields, usual, attention);
  if (usual.head_dim > 0) {
    attention.head_dim = fields.AssumeSize("head_dim", usual.head_dim, kFamilyDefault, 1, 65536);
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

}  // namespace lastflop
