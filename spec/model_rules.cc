#include "spec/model_rules.h"

#include "absl/strings/str_cat.h"

namespace lastflop {

std::string TopKProblem(int64_t top_k, int64_t num_experts) {
  return top_k <= num_experts
             ? ""
             : absl::StrCat(top_k, ": must be at most the ", num_experts, " experts");
}

std::string KvHeadsProblem(int64_t num_kv_heads, int64_t num_heads) {
  return num_kv_heads >= 1 && num_heads % num_kv_heads == 0
             ? ""
             : absl::StrCat(num_kv_heads, ": must divide the ", num_heads, " query heads");
}

std::string RotaryDimProblem(int64_t rotary_dim) {
  if (rotary_dim < 1) {
    return absl::StrCat(rotary_dim, " rotated dimensions: must be 2 or more");
  }
  return rotary_dim % 2 == 0
             ? ""
             : absl::StrCat(rotary_dim, " rotated dimensions: must be even, they turn in pairs");
}

std::string NumGroupsProblem(int64_t num_groups, int64_t num_experts) {
  return num_groups >= 1 && num_experts % num_groups == 0
             ? ""
             : absl::StrCat(num_groups, ": must divide the ", num_experts, " experts");
}

void AssumeAbsorbedKeys(Model& model) {
  if (model.attention.kind == AttentionKind::kMla &&
      model.attention_weights.format != WeightFormat::kBf16) {
    model.assumed.push_back(
        absl::StrCat("kv_b_proj: bf16 on the device, where its halves are multiplied on their own; "
                     "the model stores it as ",
                     ToWord(model.attention_weights.format)));
  }
}

std::string TopKGroupsProblem(const RouterDims& router, int64_t top_k, int64_t num_experts) {
  if (router.top_k_groups > router.num_groups) {
    return absl::StrCat(router.top_k_groups, ": must be at most the ", router.num_groups,
                        " groups");
  }
  const int64_t group_size = num_experts / router.num_groups;
  return top_k <= group_size * router.top_k_groups
             ? ""
             : absl::StrCat(router.top_k_groups, " groups of ", group_size,
                            " experts: fewer than the ", top_k, " that a token takes");
}

}  // namespace lastflop
