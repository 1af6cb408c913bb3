#include "tests/e2e/tiny_campaign.h"

#include <string>

namespace lastflop {
namespace {

constexpr char kModel[] = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
  "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "head_dim": 32, "intermediate_size": 256, "moe_intermediate_size": 64, "num_experts": 8,
  "num_experts_per_tok": 2, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
  "vocab_size": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
  "max_position_embeddings": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16"
})";

}  // namespace

std::string WriteTinyCampaign(const TestFolder& folder, const std::string& interventions,
                              const std::string& measure) {
  folder.Write("models/tiny.json", kModel);
  return folder.Write("tiny.yaml",
                      "schema: 1\n"
                      "name: tiny\n"
                      "question: Does the whole system run?\n"
                      "model: {config: models/tiny.json, layers: all}\n"
                      "machine: auto\n"
                      "baseline:\n"
                      "  parallel: {tensor: 1}\n"
                      "  moe: {weights: int4_g32, kernel: grouped}\n"
                      "  launch: {graph: none}\n"
                      "workload:\n"
                      "  routing: {distribution: zipf, exponent: 1.0, seed: 7}\n"
                      "  points:\n"
                      "    - {phase: decode, batch: 1, context: 16, time_share: 0.5}\n"
                      "    - {phase: decode, batch: 4, context: 16, time_share: 0.5}\n"
                      "measure: {" +
                          measure +
                          // Ceilings of so small a step depend on how busy the host is.
                          ", prune: false}\n"
                          "interventions:" +
                          interventions);
}

}  // namespace lastflop
