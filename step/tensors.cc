#include "step/tensors.h"

#include <algorithm>
#include <variant>

#include "step/work.h"

namespace lastflop {
namespace {

constexpr int64_t kBf16Bytes = 2;
constexpr int64_t kWordBytes = 4;  // fp32 and int32.

// What one op needs of its tensors, in bytes.
struct TensorNeeds {
  int64_t in = 0;
  int64_t in2 = 0;
  int64_t out = 0;
};

struct NeedsOf {
  const Op& op;

  TensorNeeds operator()(const EmbeddingShape& s) const {
    return {.in = s.num_tokens * kWordBytes, .out = s.num_tokens * s.hidden_size * kBf16Bytes};
  }
  TensorNeeds operator()(const NormShape& s) const {
    const int64_t bytes = s.rows * s.stride * kBf16Bytes;
    return {.in = bytes, .in2 = bytes, .out = bytes};
  }
  TensorNeeds operator()(const GemmShape& s) const {
    const int64_t stride = s.in_stride > 0 ? s.in_stride : s.in_features;
    const int64_t last_row = s.num_tokens > 0 ? (s.num_tokens - 1) * stride + s.in_features : 0;
    return {.in = (s.in_offset + last_row) * kBf16Bytes,
            .out = s.num_tokens * s.out_features * (s.fp32_out ? kWordBytes : kBf16Bytes)};
  }
  TensorNeeds operator()(const HeadGemmShape& s) const {
    const int64_t heads = s.num_tokens * s.num_heads;
    return {.in = heads * s.in_stride * kBf16Bytes, .out = heads * s.out_stride * kBf16Bytes};
  }
  TensorNeeds operator()(const RopeShape& s) const {
    const int64_t tokens = s.num_sequences * s.query_tokens;
    if (s.kind == AttentionKind::kGqa) {
      const int64_t bytes = tokens * (s.num_heads + 2 * s.num_kv_heads) * s.head_dim * kBf16Bytes;
      return {.in = bytes, .out = bytes};
    }
    return {.in = tokens * s.num_heads * (s.qk_nope_head_dim + s.qk_rope_head_dim) * kBf16Bytes,
            .out = tokens * s.num_heads * (s.kv_lora_rank + s.qk_rope_head_dim) * kBf16Bytes};
  }
  TensorNeeds operator()(const AttentionShape& s) const {
    const int64_t tokens = s.num_sequences * s.query_tokens;
    if (s.kind == AttentionKind::kGqa) {
      return {.in = tokens * (s.num_heads + 2 * s.num_kv_heads) * s.head_dim * kBf16Bytes,
              .out = tokens * s.num_heads * s.head_dim * kBf16Bytes};
    }
    return {.in = tokens * s.num_heads * (s.kv_lora_rank + s.qk_rope_head_dim) * kBf16Bytes,
            .out = tokens * s.num_heads * s.kv_lora_rank * kBf16Bytes};
  }
  TensorNeeds operator()(const RouterShape& s) const {
    return {.in = s.num_tokens * s.num_experts * kWordBytes,
            .out = s.num_tokens * s.top_k * 2 * kWordBytes};
  }
  TensorNeeds operator()(const PermuteShape& s) const {
    // Offsets, and for each pair its (token, k) index and its place.
    return {.in = s.num_tokens * s.top_k * 2 * kWordBytes,
            .out = (s.num_local_experts + 1 + 2 * s.num_tokens * s.top_k) * kWordBytes};
  }
  TensorNeeds operator()(const PadShape& s) const {
    return {.in = s.num_tokens * s.hidden_size * kBf16Bytes,
            .out = s.num_local_experts * s.padded_rows * s.hidden_size * kBf16Bytes};
  }
  TensorNeeds operator()(const ExpertGemmShape& s) const {
    if (s.padded_rows > 0) {
      const int64_t rows = s.num_local_experts * s.padded_rows;
      return {.in = rows * s.in_features * kBf16Bytes, .out = rows * s.out_columns() * kBf16Bytes};
    }
    const int64_t pairs = s.num_tokens * s.top_k;
    const int64_t in_rows = s.gather_tokens ? s.num_tokens : pairs;
    return {.in = in_rows * s.in_features * kBf16Bytes,
            .out = pairs * s.out_columns() * kBf16Bytes};
  }
  TensorNeeds operator()(const ActivationShape& s) const {
    return {.in = s.rows * 2 * s.intermediate_size * kBf16Bytes,
            .out = s.rows * s.intermediate_size * kBf16Bytes};
  }
  TensorNeeds operator()(const CombineShape& s) const {
    // Of padded rows there are as many as the product before has.
    return {.in = s.is_padded ? 0 : s.num_tokens * s.top_k * s.hidden_size * kBf16Bytes,
            .out = s.num_tokens * s.hidden_size * kBf16Bytes};
  }
  TensorNeeds operator()(const FusedMoeShape& s) const {
    const int64_t bytes = s.num_tokens * s.hidden_size * kBf16Bytes;
    return {.in = bytes, .out = bytes};
  }
  TensorNeeds operator()(const DequantShape& s) const {
    return {.out = s.num_local_experts * s.out_features * s.in_features * kBf16Bytes};
  }
  TensorNeeds operator()(const AllReduceShape& s) const {
    return {.in = s.elements * kBf16Bytes, .out = s.elements * kBf16Bytes};
  }
  TensorNeeds operator()(const AllToAllShape& s) const {
    const int64_t bytes = s.num_tokens * s.hidden_size * kBf16Bytes;
    // What the other side of the exchange needs comes from the expert ops' own shapes.
    return s.combine ? TensorNeeds{.in2 = op.in2 == Tensor::kNone ? 0 : bytes, .out = bytes}
                     : TensorNeeds{.in = bytes};
  }
  TensorNeeds operator()(const StageTransferShape& s) const {
    const int64_t bytes = (s.tokens ? s.elements : s.elements / 2) * kBf16Bytes;
    return {.in = bytes, .in2 = bytes, .out = bytes};
  }
  TensorNeeds operator()(const SampleShape& s) const {
    return {.in = s.num_tokens * s.vocab_rows * kWordBytes, .out = s.num_tokens * kWordBytes};
  }
};

}  // namespace

std::map<Tensor, int64_t> TensorBytes(const Step& step) {
  std::map<Tensor, int64_t> bytes;
  const auto grow = [&bytes](Tensor tensor, int64_t need) {
    if (tensor != Tensor::kNone) {
      bytes[tensor] = std::max(bytes[tensor], need);
    }
  };
  for (const Op& op : step.ops) {
    const TensorNeeds needs = std::visit(NeedsOf{op}, op.shape);
    grow(op.in, needs.in);
    grow(op.in2, needs.in2);
    grow(op.out, needs.out);
  }
  return bytes;
}

double WeightMemoryBytes(const Op& op) {
  if (op.weights_dequantized) {
    return 0;
  }
  if (const auto* embedding = std::get_if<EmbeddingShape>(&op.shape)) {
    return static_cast<double>(embedding->vocab_rows * embedding->hidden_size * kBf16Bytes);
  }
  // One expert's bytes are those of a load of one expert.
  const auto of_all_experts = [&op](int64_t num_experts) {
    return WorkOf(op.shape, {.pairs = 0, .unique_experts = static_cast<double>(num_experts)})
        .weight_bytes;
  };
  if (const auto* gemm = std::get_if<ExpertGemmShape>(&op.shape)) {
    return of_all_experts(gemm->num_local_experts);
  }
  if (const auto* fused = std::get_if<FusedMoeShape>(&op.shape)) {
    return of_all_experts(fused->num_local_experts);
  }
  if (const auto* dequant = std::get_if<DequantShape>(&op.shape)) {
    return of_all_experts(dequant->num_local_experts);
  }
  return op.work.weight_bytes;
}

double CacheMemoryBytes(const Op& op) {
  return std::holds_alternative<AttentionShape>(op.shape) ? op.work.cache_bytes : 0;
}

}  // namespace lastflop
