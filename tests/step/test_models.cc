#include "tests/step/test_models.h"

namespace lastflop {

Model KimiModel() {
  Model model;
  model.name = "kimi-k2.5";
  model.hidden_size = 7168;
  model.num_layers = 61;
  model.layer_kinds.assign(61, LayerKind::kMoe);
  model.layer_kinds[0] = LayerKind::kDense;
  model.dense_intermediate_size = 18432;
  model.num_experts = 384;
  model.top_k = 8;
  model.moe_intermediate_size = 2048;
  model.num_shared_experts = 1;
  model.shared_intermediate_size = 2048;
  model.vocab_size = 163840;
  model.attention.kind = AttentionKind::kMla;
  model.attention.num_heads = 64;
  model.attention.num_kv_heads = 64;
  model.attention.rotary_dim = 64;
  model.attention.q_lora_rank = 1536;
  model.attention.kv_lora_rank = 512;
  model.attention.qk_nope_head_dim = 128;
  model.attention.qk_rope_head_dim = 64;
  model.attention.v_head_dim = 128;
  model.router.scoring = RouterScoring::kSigmoid;
  model.router.has_bias = true;
  model.router.renormalize = true;
  model.router.scaling_factor = 2.827;
  model.experts = StorageOf(WeightFormat::kInt4G32);
  return model;
}

Model QwenModel() {
  Model model;
  model.name = "qwen3-30b-a3b";
  model.hidden_size = 2048;
  model.num_layers = 48;
  model.layer_kinds.assign(48, LayerKind::kMoe);
  model.num_experts = 128;
  model.top_k = 8;
  model.moe_intermediate_size = 768;
  model.vocab_size = 151936;
  model.attention.num_heads = 32;
  model.attention.num_kv_heads = 4;
  model.attention.head_dim = 128;
  model.attention.rotary_dim = 128;
  model.attention.qk_norm = true;
  model.router.renormalize = true;
  return model;
}

Model DeepSeekModel() {
  Model model = KimiModel();
  model.name = "deepseek-v3";
  model.num_experts = 256;
  model.attention.num_heads = 128;
  model.attention.num_kv_heads = 128;
  model.router.num_groups = 8;
  model.router.top_k_groups = 4;
  model.experts = StorageOf(WeightFormat::kFp8Block);
  model.shared = model.experts;
  model.dense = model.experts;
  model.attention_weights = model.experts;
  return model;
}

}  // namespace lastflop
