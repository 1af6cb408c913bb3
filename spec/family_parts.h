#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "common/model.h"
#include "spec/config_json_fields.h"

// Parts of a config that several families of models say alike. Problems are left in `fields`.
namespace lastflop {

// Why a number that the config leaves out is assumed.
inline constexpr absl::string_view kFamilyDefault = "the family's default";

// An error at `key` where there is a problem.
void Require(ConfigFields& fields, absl::string_view key, const std::string& problem);

// Number, choice and width of the routed experts, each under the family's own key.
void ReadExperts(ConfigFields& fields, absl::string_view num_experts_key,
                 absl::string_view top_k_key, absl::string_view width_key, Model& model);

// The width of dense layers, where there are any.
void ReadDenseWidth(ConfigFields& fields, absl::string_view key, Model& model);

// Every layer has experts.
void ReadAllExpertLayers(Model& model);

// What a family takes where its config is silent.
struct GqaDefaults {
  int64_t num_kv_heads = 8;
  int64_t head_dim = 0;  // 0: the width over the heads.
};

// Attention with fewer heads of keys and values than of queries, all of a head rotated.
void ReadGqa(ConfigFields& fields, const GqaDefaults& usual, Model& model);

// The share of a head that is rotated, where the config or its rope_parameters say it.
std::optional<double> RotaryShare(ConfigFields& fields);

// The rotated dimensions of a head when `share` of it is.
int64_t RotaryDim(const Model& model, double share);

// `scoring` as a config names it: softmax or sigmoid.
void ReadScoring(ConfigFields& fields, const std::string& scoring, RouterDims& router);

}  // namespace lastflop
