#pragma once

#include <cstdint>

#include "common/model.h"
#include "common/words.h"

// Shapes of every op of a step: what planner, executor, kernels and references share.
//
// Tensors between ops are bf16, row-major, and every kernel accumulates in fp32; router scores,
// top-k weights and logits are fp32. A weight matrix is [out_features, in_features] row-major, as
// checkpoints store it. All sizes are one rank's.
namespace lastflop {

// out[t, h] = table[token_id[t] - vocab_begin, h], zeros where the id is another rank's.
struct EmbeddingShape {
  int64_t num_tokens = 0;
  int64_t hidden_size = 0;
  int64_t vocab_begin = 0;
  int64_t vocab_rows = 0;  // Of this rank.
  bool operator==(const EmbeddingShape&) const = default;
};

// residual[t, i] += in[t, i] when add_residual (else residual = in); out = rmsnorm(residual) *
// gain. A norm over parts of a row (qk_norm, q_a and kv_a norms of MLA) has in == out: it works in
// place, without a residual, on `parts` runs of `size` elements that start at `offset` of each row
// (one gain of `size` for all parts).
struct NormShape {
  int64_t rows = 0;
  int64_t size = 0;
  int64_t stride = 0;  // Elements between rows.
  int64_t parts = 1;   // Heads of a query or key; 1 for a whole row.
  int64_t offset = 0;  // Elements before the first part.
  double epsilon = 1e-6;
  bool add_residual = false;
  bool operator==(const NormShape&) const = default;
};

// out[t, n] = sum_k in[in_offset + t * in_stride + k] * weight[n, k] (+ bias[n]).
struct GemmShape {
  int64_t num_tokens = 0;
  int64_t out_features = 0;
  int64_t in_features = 0;
  int64_t in_stride = 0;  // Elements between rows of `in`; 0: in_features.
  int64_t in_offset = 0;  // Elements before the first row: a prompt's last token.
  WeightStorage storage = {};
  bool bias = false;
  bool fp32_out = false;  // Router scores and logits.
  bool operator==(const GemmShape&) const = default;
};

// MLA's absorbed products, one small matrix a head:
// out[t, head, n] = sum_k in[t, head, k] * weight[head, n, k].
struct HeadGemmShape {
  int64_t num_tokens = 0;
  int64_t num_heads = 0;
  int64_t out_features = 0;  // Per head.
  int64_t in_features = 0;   // Per head.
  int64_t in_stride = 0;     // Elements between heads of a token in `in`.
  int64_t out_stride = 0;    // Elements between heads of a token in `out`.
  bool operator==(const HeadGemmShape&) const = default;
};

// Rotary embedding on query and key, and the write of key and value of the new tokens into the
// cache. gqa: `qkv` is [num_tokens, (num_heads + 2 * num_kv_heads) * head_dim].
// mla: query is [num_tokens, num_heads, qk_nope + qk_rope] and the cache row is kv_lora_rank +
// qk_rope_head_dim wide.
struct RopeShape {
  AttentionKind kind = AttentionKind::kGqa;
  int64_t num_sequences = 0;
  int64_t query_tokens = 1;  // Per sequence: 1, draft + 1, or the prompt.
  int64_t context = 0;       // Tokens already in the cache.
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // gqa
  int64_t rotary_dim = 0;
  int64_t kv_lora_rank = 0;      // mla
  int64_t qk_nope_head_dim = 0;  // mla
  int64_t qk_rope_head_dim = 0;  // mla
  double theta = 10000.0;
  CacheFormat cache = CacheFormat::kBf16;
  bool operator==(const RopeShape&) const = default;
};

// Softmax attention of the new tokens over cache and themselves (causal among themselves).
// gqa cache: keys and values, each [num_sequences, context + query_tokens, num_kv_heads, head_dim].
// mla cache: [num_sequences, context + query_tokens, kv_lora_rank + qk_rope_head_dim], one for all
// heads, values are its first kv_lora_rank columns (absorbed form).
struct AttentionShape {
  AttentionKind kind = AttentionKind::kGqa;
  int64_t num_sequences = 0;
  int64_t query_tokens = 1;
  int64_t context = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;          // gqa
  int64_t kv_lora_rank = 0;      // mla
  int64_t qk_rope_head_dim = 0;  // mla
  double softmax_scale = 0;
  CacheFormat cache = CacheFormat::kBf16;
  bool operator==(const AttentionShape&) const = default;
};

// scores[t, e] -> expert_ids[t, k], weights[t, k]: scoring, correction bias, grouped top-k,
// renormalisation and scaling as RouterDims says; `opportunistic_keep` > 0 limits a batch to the
// experts that any token has among its best so many (DESIGN: moe.expert_activation).
struct RouterShape {
  int64_t num_tokens = 0;
  int64_t num_experts = 0;
  int64_t top_k = 0;
  RouterDims router;
  int64_t opportunistic_keep = 0;
  bool operator==(const RouterShape&) const = default;
};

// Groups (token, k) pairs by local expert: offsets[num_local_experts + 1] and the sorted pair list.
struct PermuteShape {
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  int64_t num_experts = 0;
  int64_t first_expert = 0;  // The rank's experts are [first_expert, first + num_local_experts).
  int64_t num_local_experts = 0;
  bool operator==(const PermuteShape&) const = default;
};

// Copies every pair's token to its place among the padded rows of its expert, for products that are
// batched over experts of equally many rows: out[e, i, h] = in[token of pair i of expert e, h], in
// [num_local_experts, padded_rows, hidden_size]. Rows past an expert's pairs are left as they are.
struct PadShape {
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  int64_t num_local_experts = 0;
  int64_t padded_rows = 0;  // Of an expert, the most pairs that it can have.
  int64_t hidden_size = 0;
  bool operator==(const PadShape&) const = default;
};

// Routed experts. gate_up: in is [num_tokens, hidden], out is [pairs, 2 * intermediate], gate rows
// first; with `swiglu` the kernel applies ActivationShape's formula to the fp32 sums and out is
// [pairs, intermediate]. down: in is [pairs, intermediate], out is [pairs, hidden]. `pairs` is
// known on the device only, at most num_tokens * top_k. With padded_rows it is one product of all
// local experts: `in` and `out` are [num_local_experts, padded_rows, features], of which an
// expert's pairs are the first rows, and every row of every expert is computed.
struct ExpertGemmShape {
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  int64_t num_local_experts = 0;
  int64_t out_features = 0;
  int64_t in_features = 0;
  bool gather_tokens = false;  // gate_up reads rows of tokens by the pair list.
  bool swiglu = false;
  WeightStorage storage = {};
  ActivationFormat activations = ActivationFormat::kBf16;
  TileOrder tile_order = TileOrder::kRowMajor;
  int64_t group_m = 0;
  int64_t padded_rows = 0;  // Of an expert; 0: pairs follow each other.
  bool operator==(const ExpertGemmShape&) const = default;
  // Columns of `out`.
  int64_t out_columns() const { return swiglu ? out_features / 2 : out_features; }
};

// out[r, f] = silu(in[r, f]) * in[r, intermediate_size + f].
struct ActivationShape {
  int64_t rows = 0;  // Upper bound when the rows are pairs.
  int64_t intermediate_size = 0;
  bool rows_are_pairs = false;  // The real number is the permutation's last offset.
  bool is_padded = false;       // Pairs lie where PadShape puts them; no other row is computed.
  bool operator==(const ActivationShape&) const = default;
};

// out[t, h] = sum over the token's pairs on this rank of weight * in[pair, h] (+ shared[t, h]).
struct CombineShape {
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  int64_t hidden_size = 0;
  bool add_shared = false;
  bool is_padded = false;  // `in` has pairs where PadShape puts them.
  bool operator==(const CombineShape&) const = default;
};

// gate_up, activation, down and combine in one kernel.
struct FusedMoeShape {
  int64_t num_tokens = 0;
  int64_t top_k = 0;
  int64_t num_local_experts = 0;
  int64_t hidden_size = 0;
  int64_t moe_intermediate_size = 0;  // Of this rank.
  WeightStorage storage = {};
  TileOrder tile_order = TileOrder::kRowMajor;
  bool add_shared = false;
  bool operator==(const FusedMoeShape&) const = default;
};

// Dequantizes the weights of the experts that this step touches into a bf16 buffer.
struct DequantShape {
  int64_t num_local_experts = 0;
  int64_t out_features = 0;
  int64_t in_features = 0;
  WeightStorage storage = {};
  bool operator==(const DequantShape&) const = default;
};

// Sum over ranks of `elements` bf16 values, in place.
struct AllReduceShape {
  int64_t elements = 0;
  int64_t ranks = 1;
  AllReduceAlgorithm algorithm = AllReduceAlgorithm::kAuto;
  ActivationFormat payload = ActivationFormat::kBf16;
  bool operator==(const AllReduceShape&) const = default;
};

// Hand-over of hidden state and residual to the next pipeline stage (receive: from the last one).
struct StageTransferShape {
  int64_t elements = 0;  // bf16, both tensors together; of token ids two for each.
  bool receive = false;
  bool tokens = false;  // Sampled token ids, from the last stage to the first.
  bool operator==(const StageTransferShape&) const = default;
};

// dispatch: every token row goes to the ranks that own its experts; combine: the way back, summed.
struct AllToAllShape {
  int64_t num_tokens = 0;  // Of this rank.
  int64_t top_k = 0;
  int64_t hidden_size = 0;
  int64_t num_experts = 0;
  int64_t ranks = 1;
  bool combine = false;
  AllToAllAlgorithm algorithm = AllToAllAlgorithm::kP2p;
  ActivationFormat payload = ActivationFormat::kBf16;
  bool operator==(const AllToAllShape&) const = default;
};

// Greedy choice over this rank's logits [num_tokens, vocab_rows], then over ranks: the (value, id)
// pairs travel, not the logits.
struct SampleShape {
  int64_t num_tokens = 0;
  int64_t vocab_rows = 0;
  int64_t vocab_begin = 0;
  int64_t ranks = 1;
  bool operator==(const SampleShape&) const = default;
};

}  // namespace lastflop
