#pragma once

#include "common/model.h"
#include "spec/config_json_fields.h"
#include "spec/huggingface_families.h"

namespace lastflop {

// Fills in how each class of weights is stored, from the quantization block that `fields` is, and
// reports into the model's `assumed` and `not_modelled`. Dimensions and layers must be read
// already. Mistakes, and formats that lastflop has no kernel for, are errors in fields.status().
void ReadQuantization(const ModuleNames& modules, ConfigFields& fields, Model& model);

}  // namespace lastflop
