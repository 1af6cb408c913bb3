#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model.h"

namespace lastflop {

// A model from a short YAML with lastflop's own names, for one that has no config.json:
//
//   schema: 1
//   name: my-model
//   hidden_size: 2048
//   num_layers: 48
//   dense_layers: 1                # how many lead, or a list of layers; none without the key
//   dense_intermediate_size: 6144  # where there are dense layers
//   num_experts: 128
//   top_k: 8
//   moe_intermediate_size: 768
//   num_shared_experts: 1          # none without the key
//   vocab_size: 151936
//   attention: {kind: gqa, num_heads: 32, num_kv_heads: 4, head_dim: 128}
//   router: {scoring: softmax, renormalize: true}
//   formats: {experts: int4_g32}   # shared, dense, attention, lm_head: bf16 without the key
//
// InvalidArgument with one line FILE:LINE:COLUMN: path: message a mistake.
absl::StatusOr<Model> ReadModelYaml(absl::string_view text, absl::string_view file_name);

}  // namespace lastflop
