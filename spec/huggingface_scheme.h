#pragma once

#include <vector>

#include "common/model.h"
#include "spec/config_json_fields.h"
#include "spec/module_patterns.h"

namespace lastflop {

// Weights that are stored alike, and which modules have them.
struct StorageGroup {
  WeightStorage storage;
  bool all = false;        // Every linear layer that is not ignored...
  ModulePatterns targets;  // ...or those named here.
};

// What a quantization block says.
struct QuantizationScheme {
  std::vector<StorageGroup> groups;
  ModulePatterns ignored;
  bool experts_only = false;  // mxfp4 as gpt-oss has it.
  bool keeps_lm_head = true;  // The LM head stays bf16 unless the block says otherwise.
};

// Reads the quantization block that `fields` is; what it leaves to the plan or lastflop does not
// run goes to the model's `assumed` and `not_modelled`. Mistakes, and formats that lastflop has no
// kernel for, are errors in fields.status().
QuantizationScheme ReadQuantizationScheme(ConfigFields& fields, Model& model);

}  // namespace lastflop
