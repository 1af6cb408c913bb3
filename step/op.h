#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/words.h"
#include "step/shapes.h"

namespace lastflop {

// The least a shape needs. Weight bytes count each touched expert once.
struct Work {
  double flop = 0;
  double weight_bytes = 0;      // Cold: read once a step.
  double activation_bytes = 0;  // Inputs and outputs; usually cache resident at small batches.
  double cache_bytes = 0;       // KV cache read and written.
  double link_bytes = 0;        // Sent by this rank.
  double bytes() const { return weight_bytes + activation_bytes + cache_bytes; }
};

// Activations of a step, as an executor keeps them.
enum class Tensor {
  kNone,
  kTokenIds,      // [num_tokens] int32
  kResidual,      // [num_tokens, hidden]
  kHidden,        // [num_tokens, hidden] output of a block, added to the residual by the next norm
  kNormed,        // [num_tokens, hidden]
  kQkv,           // gqa [num_tokens, (heads + 2 kv_heads) * head_dim]
  kMlaLatents,    // [num_tokens, q_lora_rank + kv_lora_rank + qk_rope_head_dim]
  kMlaQuery,      // [num_tokens, heads, qk_nope + qk_rope]
  kMlaAbsorbed,   // [num_tokens, heads, kv_lora_rank + qk_rope]
  kMlaLatentOut,  // [num_tokens, heads, kv_lora_rank]
  kAttentionOut,  // [num_tokens, heads * value width]
  kFfn,           // [num_tokens, 2 * dense or shared intermediate]
  kFfnAct,        // [num_tokens, dense or shared intermediate]
  kSharedOut,     // [num_tokens, hidden]
  kRouterScores,  // [num_tokens, num_experts] fp32
  kRouting,       // expert ids and weights [num_tokens, top_k]
  kPairs,         // permutation: offsets and pair list
  kExpertInput,   // data attention: tokens received [<= all pairs, hidden]
  kExpertPadded,  // [experts, padded rows, hidden], where the experts' products are one batch: then
                  // the next three are [experts, padded rows, ...] too
  kExpertGateUp,  // [pairs, 2 * moe_intermediate], where SwiGLU is an op of its own
  kExpertAct,     // [pairs, moe_intermediate]
  kExpertOut,     // [pairs, hidden]
  kExpertSum,     // data attention: [tokens received, hidden], weighted sums before the way back
  kDequantGateUp,  // bf16 copies of touched experts' weights
  kDequantDown,
  kLogits,  // [num_tokens, vocab_rows] fp32
  kSampled  // [num_tokens] int32
};

// Weights of a step. With Op::layer it names one tensor of the model, of which a rank holds a part.
enum class Weight {
  kNone,
  kEmbedding,
  kInputNorm,
  kQkv,  // gqa: query, key, value rows
  kQueryNorm,
  kKeyNorm,
  kMlaDown,  // q_a and kv_a rows together (q_lora_rank + kv_lora_rank + qk_rope_head_dim)
  kMlaQueryNorm,
  kMlaKvNorm,
  kMlaQueryUp,  // q_b, or q when there is no q_lora_rank
  kMlaKeyUp,    // W_UK per head [heads, kv_lora_rank, qk_nope]
  kMlaValueUp,  // W_UV per head [heads, v_head_dim, kv_lora_rank]
  kAttentionOut,
  kPostNorm,
  kFfnGateUp,  // dense layer
  kFfnDown,
  kRouter,
  kRouterBias,
  kExpertGateUp,  // [experts, 2 * moe_intermediate, hidden]
  kExpertDown,    // [experts, hidden, moe_intermediate]
  kSharedGateUp,
  kSharedDown,
  kFinalNorm,
  kLmHead
};

using OpShape = std::variant<EmbeddingShape, NormShape, GemmShape, HeadGemmShape, RopeShape,
                             AttentionShape, RouterShape, PermuteShape, PadShape, ExpertGemmShape,
                             ActivationShape, CombineShape, FusedMoeShape, DequantShape,
                             AllReduceShape, AllToAllShape, StageTransferShape, SampleShape>;

// One op of one rank's step.
struct Op {
  std::string name;  // "moe.gate_up"; the same in every layer; claims name it: op:NAME
  OpCategory category = OpCategory::kOther;
  int layer = -1;          // Model layer; -1 outside the layers.
  int64_t num_layers = 1;  // This one, and later ones whose op is alike and not built.
  OpShape shape;
  Tensor in = Tensor::kNone;
  Tensor in2 = Tensor::kNone;  // Second input: routing, pairs, shared output.
  Tensor out = Tensor::kNone;
  Weight weight = Weight::kNone;  // Of a fused MoE op kExpertGateUp, which goes with kExpertDown.
  // The expert weights are read from the bf16 copies that dequant ops before this one made
  // (kDequantGateUp, kDequantDown), not from `weight` itself.
  bool weights_dequantized = false;
  Work work;
};

// The ordered ops of a plan on one rank at one point. `layers` lists the model layers that `ops`
// covers, in part by Op::num_layers; when only some are kept, each kept MoE (dense) layer stands
// for `moe_layer_scale`
// (`dense_layer_scale`) of the model's, and ops with layer -1 happen once.
struct Step {
  std::vector<Op> ops;
  Tensor input = Tensor::kTokenIds;  // What a draw fills before the step runs.
  Tensor output = Tensor::kNormed;   // Hidden states that it ends with.
  // Routed experts alone (StepOptions). Their routing is made with a draw's inputs: the router's
  // ops are here to make it and are no part of a run.
  bool experts_only = false;
  std::vector<int> layers;
  double moe_layer_scale = 1;
  double dense_layer_scale = 1;
  int64_t num_tokens = 0;      // Tokens this rank works on, in one pass over `ops`.
  int64_t micro_batches = 1;   // Passes over `ops` a step; above 1 in a pipeline only.
  double tokens_per_step = 0;  // Output tokens of the whole deployment a step, speculation included
};

}  // namespace lastflop
