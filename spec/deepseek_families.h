#pragma once

#include "common/model.h"
#include "spec/config_json_fields.h"

// Families whose layers are DeepSeek's: shared and routed experts, leading dense layers, a router
// of one of its kinds. Each fills in a model from its config; problems are left in `fields`.
namespace lastflop {

// DeepSeek-V2 and its Lite.
void ReadDeepseekV2(ConfigFields& fields, Model& model);

// DeepSeek-V3 to V3.2, Kimi-K2 and its successors.
void ReadDeepseekV3(ConfigFields& fields, Model& model);

// GLM-5.
void ReadGlmMoeDsa(ConfigFields& fields, Model& model);

// GLM-4.7-Flash.
void ReadGlm4MoeLite(ConfigFields& fields, Model& model);

// GLM-4.5 to 4.7.
void ReadGlm4Moe(ConfigFields& fields, Model& model);

// The language model of GLM-4.5V.
void ReadGlm4vMoe(ConfigFields& fields, Model& model);

}  // namespace lastflop
