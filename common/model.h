#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/words.h"

namespace lastflop {

// The attention block of every layer.
struct AttentionDims {
  AttentionKind kind = AttentionKind::kGqa;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // gqa: heads of the cache; replicated when fewer than ranks.
  int64_t head_dim = 0;      // gqa: of query, key and value.
  int64_t rotary_dim = 0;    // How many of head_dim (gqa) or qk_rope_head_dim (mla) are rotated.
  bool qk_norm = false;      // RMSNorm on query and key heads.
  bool bias = false;         // Bias on the query, key, value (and output) projections.
  // mla only. 0 for q_lora_rank means that the query is projected in one product.
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_nope_head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t v_head_dim = 0;
};

// From hidden state to the top-k experts of a token.
struct RouterDims {
  RouterScoring scoring = RouterScoring::kSoftmax;
  bool has_bias = false;     // A correction bias is added for the choice, not for the weight.
  int64_t num_groups = 1;    // Grouped top-k: experts are in this many groups,
  int64_t top_k_groups = 1;  // of which the best so many take part.
  bool renormalize = false;  // The k weights are divided by their sum.
  bool softmax_after_top_k = false;  // gpt-oss: the softmax is over the chosen k only.
  double scaling_factor = 1.0;       // routed_scaling_factor.
  bool operator==(const RouterDims&) const = default;
};

// How one weight class is stored, as the model's quantization block says it.
struct WeightStorage {
  WeightFormat format = WeightFormat::kBf16;
  int64_t group_size = 0;  // Weights a scale, along the input dimension; 0 for bf16.
  int64_t block_rows = 0;  // fp8_block: rows a scale (output dimension); else 0.
  bool operator==(const WeightStorage&) const = default;
};

// Dimensions and storage of a decoder-only MoE language model. Read from a Hugging Face
// config.json or a short YAML by spec/; nothing here depends on a machine or a plan.
struct Model {
  std::string name;          // File stem or the `name` of a YAML.
  std::string architecture;  // "DeepseekV3ForCausalLM"
  std::string model_type;
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  std::vector<LayerKind> layer_kinds;  // One a layer; dense layers lead or are interleaved.
  int64_t dense_intermediate_size = 0;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_shared_experts = 0;
  int64_t shared_intermediate_size = 0;  // Of all shared experts together; 0 without.
  int64_t vocab_size = 0;
  bool tie_word_embeddings = false;
  int64_t max_position_embeddings = 0;
  double rms_norm_epsilon = 1e-6;
  double rope_theta = 10000.0;
  AttentionDims attention;
  RouterDims router;
  WeightStorage experts;  // Routed experts.
  WeightStorage shared;   // Shared experts.
  WeightStorage dense;    // Dense FFN layers.
  WeightStorage attention_weights;
  WeightStorage lm_head;
  std::vector<std::string> assumed;       // What the config did not say and was taken as usual.
  std::vector<std::string> not_modelled;  // What the config says and lastflop does not run.

  int64_t num_dense_layers() const;
  int64_t num_moe_layers() const { return num_layers - num_dense_layers(); }
};

// Bits a weight takes in storage, scales included, e.g. 4.5 for int4_g32. `group_size` and
// `block_rows` as in WeightStorage; 0 takes the format's usual ones.
double BitsPerWeight(const WeightStorage& storage);

// The usual storage of a format: int4_g32 -> group 32, fp8_block -> 128x128.
WeightStorage StorageOf(WeightFormat format);

// Bytes of all weights of one routed expert: gate, up and down, 3 H I b.
double ExpertBytes(const Model& model, const WeightStorage& storage);

// Bytes of the whole model as its config stores it: embedding, attention, norms, router, experts,
// dense layers and LM head.
double ModelBytes(const Model& model);

}  // namespace lastflop
