#include "step/work.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace lastflop {
namespace {

constexpr double kBf16Bytes = 2;
constexpr double kFp32Bytes = 4;
constexpr double kSwigluFlop = 5;  // A value: exponential, sum, division, two products.

double ToDouble(int64_t value) { return static_cast<double>(value); }

double CacheBytes(CacheFormat format) { return format == CacheFormat::kFp8 ? 1 : 2; }

// Values of one cached token: keys and values, or the latent with its rotated part.
double CacheRow(AttentionKind kind, int64_t num_kv_heads, int64_t head_dim, int64_t kv_lora_rank,
                int64_t qk_rope_head_dim) {
  return kind == AttentionKind::kGqa ? ToDouble(2 * num_kv_heads * head_dim)
                                     : ToDouble(kv_lora_rank + qk_rope_head_dim);
}

struct Pricer {
  ExpertLoad load;

  Work operator()(const EmbeddingShape& s) const {
    const double row_bytes = ToDouble(s.num_tokens * s.hidden_size) * kBf16Bytes;
    return {.weight_bytes = row_bytes, .activation_bytes = row_bytes};
  }

  Work operator()(const NormShape& s) const {
    const double values = ToDouble(s.rows * s.parts * s.size);
    // Read and write of the row itself, and of the residual where it is summed.
    const double passes = s.add_residual ? 4 : 2;
    return {.flop = values * (s.add_residual ? 5 : 4),
            .weight_bytes = ToDouble(s.size) * kBf16Bytes,
            .activation_bytes = values * passes * kBf16Bytes};
  }

  Work operator()(const GemmShape& s) const {
    const double out_bytes = s.fp32_out ? kFp32Bytes : kBf16Bytes;
    return {.flop = 2 * ToDouble(s.num_tokens * s.out_features) * ToDouble(s.in_features),
            .weight_bytes = StoredBytes(s.storage, s.out_features, s.in_features) +
                            (s.bias ? ToDouble(s.out_features) * kBf16Bytes : 0),
            .activation_bytes = ToDouble(s.num_tokens * s.in_features) * kBf16Bytes +
                                ToDouble(s.num_tokens * s.out_features) * out_bytes};
  }

  Work operator()(const HeadGemmShape& s) const {
    const double weights = ToDouble(s.num_heads * s.out_features * s.in_features);
    return {
        .flop = 2 * ToDouble(s.num_tokens) * weights,
        .weight_bytes = weights * kBf16Bytes,
        .activation_bytes =
            ToDouble(s.num_tokens * s.num_heads * (s.in_features + s.out_features)) * kBf16Bytes};
  }

  Work operator()(const RopeShape& s) const {
    const double tokens = ToDouble(s.num_sequences * s.query_tokens);
    const int64_t rotated_heads =
        s.num_heads + (s.kind == AttentionKind::kGqa ? s.num_kv_heads : 1);
    const double rotated = tokens * ToDouble(rotated_heads * s.rotary_dim);
    const double row =
        CacheRow(s.kind, s.num_kv_heads, s.head_dim, s.kv_lora_rank, s.qk_rope_head_dim);
    return {.flop = 3 * rotated,
            .activation_bytes = (2 * rotated + tokens * row) * kBf16Bytes,
            .cache_bytes = tokens * row * CacheBytes(s.cache)};
  }

  Work operator()(const AttentionShape& s) const {
    const bool is_gqa = s.kind == AttentionKind::kGqa;
    const double sequences = ToDouble(s.num_sequences);
    const double tokens = sequences * ToDouble(s.query_tokens);
    // Causal among the new tokens: the i-th sees context + i + 1 of them.
    const double seen = ToDouble(s.context) + (ToDouble(s.query_tokens) + 1) / 2;
    const double key_width = ToDouble(is_gqa ? s.head_dim : s.kv_lora_rank + s.qk_rope_head_dim);
    const double value_width = ToDouble(is_gqa ? s.head_dim : s.kv_lora_rank);
    const double heads = ToDouble(s.num_heads);
    const double row =
        CacheRow(s.kind, s.num_kv_heads, s.head_dim, s.kv_lora_rank, s.qk_rope_head_dim);
    return {.flop = 2 * tokens * seen * heads * (key_width + value_width),
            .activation_bytes = tokens * heads * (key_width + value_width) * kBf16Bytes,
            .cache_bytes =
                sequences * ToDouble(s.context + s.query_tokens) * row * CacheBytes(s.cache)};
  }

  Work operator()(const RouterShape& s) const {
    const double scores = ToDouble(s.num_tokens * s.num_experts);
    return {.flop = 2 * scores,
            .weight_bytes = s.router.has_bias ? ToDouble(s.num_experts) * kFp32Bytes : 0,
            .activation_bytes =
                scores * kFp32Bytes + ToDouble(s.num_tokens * s.top_k) * 2 * kFp32Bytes};
  }

  Work operator()(const PermuteShape& s) const {
    return {.activation_bytes = 2 * ToDouble(s.num_tokens * s.top_k) * kFp32Bytes +
                                ToDouble(s.num_local_experts + 1) * kFp32Bytes};
  }

  Work operator()(const PadShape& s) const {
    const double rows = std::min(load.pairs, ToDouble(s.num_tokens)) + load.pairs;
    return {.activation_bytes = rows * ToDouble(s.hidden_size) * kBf16Bytes};
  }

  // All rows of all experts, whatever the routing.
  static Work PaddedWork(const ExpertGemmShape& s) {
    const double experts = ToDouble(s.num_local_experts);
    const double rows = experts * ToDouble(s.padded_rows);
    return {.flop = 2 * rows * ToDouble(s.out_features) * ToDouble(s.in_features),
            .weight_bytes = experts * StoredBytes(s.storage, s.out_features, s.in_features),
            .activation_bytes = rows * ToDouble(s.in_features + s.out_features) * kBf16Bytes};
  }

  Work operator()(const ExpertGemmShape& s) const {
    if (s.padded_rows > 0) {
      return PaddedWork(s);
    }
    const double in_rows =
        s.gather_tokens ? std::min(load.pairs, ToDouble(s.num_tokens)) : load.pairs;
    const double out = load.pairs * ToDouble(s.out_columns());
    return {
        .flop = 2 * load.pairs * ToDouble(s.out_features) * ToDouble(s.in_features) +
                (s.swiglu ? kSwigluFlop * out : 0),
        .weight_bytes = load.unique_experts * StoredBytes(s.storage, s.out_features, s.in_features),
        .activation_bytes = (in_rows * ToDouble(s.in_features) + out) * kBf16Bytes};
  }

  Work operator()(const ActivationShape& s) const {
    const double rows = s.rows_are_pairs ? load.pairs : ToDouble(s.rows);
    const double values = rows * ToDouble(s.intermediate_size);
    return {.flop = kSwigluFlop * values, .activation_bytes = 3 * values * kBf16Bytes};
  }

  Work operator()(const CombineShape& s) const {
    const double out = ToDouble(s.num_tokens * s.hidden_size);
    const double in = load.pairs * ToDouble(s.hidden_size) + (s.add_shared ? out : 0);
    return {.flop = 2 * in, .activation_bytes = (in + out) * kBf16Bytes};
  }

  Work operator()(const FusedMoeShape& s) const {
    const double weights = 3 * ToDouble(s.hidden_size) * ToDouble(s.moe_intermediate_size);
    const double tokens = ToDouble(s.num_tokens * s.hidden_size);
    return {.flop = 2 * load.pairs * weights +
                    kSwigluFlop * load.pairs * ToDouble(s.moe_intermediate_size),
            .weight_bytes = load.unique_experts *
                            (StoredBytes(s.storage, 2 * s.moe_intermediate_size, s.hidden_size) +
                             StoredBytes(s.storage, s.hidden_size, s.moe_intermediate_size)),
            .activation_bytes = tokens * (s.add_shared ? 3 : 2) * kBf16Bytes};
  }

  Work operator()(const DequantShape& s) const {
    const double weights = load.unique_experts * ToDouble(s.out_features) * ToDouble(s.in_features);
    return {
        .flop = 2 * weights,
        .weight_bytes = load.unique_experts * StoredBytes(s.storage, s.out_features, s.in_features),
        .activation_bytes = weights * kBf16Bytes};
  }

  Work operator()(const AllReduceShape& s) const {
    const double bytes = ToDouble(s.elements) * PayloadBytes(s.payload);
    const double ranks = ToDouble(s.ranks);
    // The least that any algorithm sends: reduce-scatter and all-gather.
    return {.flop = ToDouble(s.elements) * (ranks - 1) / ranks,
            .activation_bytes = 2 * ToDouble(s.elements) * kBf16Bytes,
            .link_bytes = 2 * bytes * (ranks - 1) / ranks};
  }

  Work operator()(const AllToAllShape& s) const {
    // A token's row travels once to each rank that owns at least one of its experts: 1 - the chance
    // that all top_k fall elsewhere.
    double miss = 1;
    const double experts = ToDouble(s.num_experts);
    const double local = experts / ToDouble(s.ranks);
    for (int64_t k = 0; k < s.top_k; ++k) {
      miss *= std::max(0.0, (experts - local - ToDouble(k)) / (experts - ToDouble(k)));
    }
    const double rows = ToDouble(s.num_tokens) * ToDouble(s.ranks - 1) * (1 - miss);
    const double row_values = ToDouble(s.hidden_size);
    return {.activation_bytes = (ToDouble(s.num_tokens) + rows) * row_values * kBf16Bytes,
            .link_bytes = rows * row_values * PayloadBytes(s.payload)};
  }

  Work operator()(const StageTransferShape& s) const {
    const double bytes = ToDouble(s.elements) * kBf16Bytes;
    return {.activation_bytes = bytes, .link_bytes = s.receive ? 0 : bytes};
  }

  Work operator()(const SampleShape& s) const {
    const double logits = ToDouble(s.num_tokens * s.vocab_rows);
    return {.flop = logits,
            .activation_bytes = logits * kFp32Bytes,
            .link_bytes = s.ranks > 1 ? ToDouble(s.num_tokens) * 2 * kFp32Bytes : 0};
  }
};

}  // namespace

Work WorkOf(const OpShape& shape, const ExpertLoad& load) {
  return std::visit(Pricer{load}, shape);
}

double StoredBytes(const WeightStorage& storage, int64_t out_features, int64_t in_features) {
  return ToDouble(out_features) * ToDouble(in_features) * BitsPerWeight(storage) / 8;
}

double PayloadBytes(ActivationFormat payload) {
  switch (payload) {
    case ActivationFormat::kBf16:
      return 2;
    case ActivationFormat::kFp8:
      return 1;
    case ActivationFormat::kNvfp4:
      return 0.5625;  // 4 bits and an fp8 scale for 16 values.
  }
  return 2;
}

}  // namespace lastflop
