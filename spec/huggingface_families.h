#pragma once

#include <array>
#include <string>

#include "absl/strings/string_view.h"
#include "common/model.h"
#include "spec/config_json_fields.h"

namespace lastflop {

// What the parts of a checkpoint are called: a quantization block names them.
struct ModuleNames {
  absl::string_view ffn = "mlp";  // "model.layers.3.mlp"
  std::array<absl::string_view, 3> projections = {"gate_proj", "up_proj", "down_proj"};
  absl::string_view shared = "shared_experts";  // "mlp.shared_experts.up_proj"
};

// How one family of models says what it is. The one place to add a family.
struct ModelFamily {
  absl::string_view model_type;
  // Fills in everything but names, storage and what all families share.
  void (*read)(ConfigFields& fields, Model& model);
  ModuleNames modules;
  double rope_theta = 10000;  // Where its config does not say.
};

// The family of a `model_type`, or null. The type of a model with images or sound around a language
// model that is known, "llama4", stands for that one.
const ModelFamily* FindModelFamily(absl::string_view model_type);

// "deepseek_v2, deepseek_v3, ...": for messages that say what would be accepted.
std::string AllModelTypes();

}  // namespace lastflop
