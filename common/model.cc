#include "common/model.h"

#include <algorithm>

namespace lastflop {
namespace {

constexpr double kBf16Bytes = 2;
constexpr double kFp32Bytes = 4;

double Bytes(const WeightStorage& storage, int64_t rows, int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(columns) * BitsPerWeight(storage) / 8;
}

double AttentionBytes(const Model& model) {
  const AttentionDims& a = model.attention;
  const WeightStorage& storage = model.attention_weights;
  const int64_t hidden = model.hidden_size;
  if (a.kind == AttentionKind::kGqa) {
    const int64_t qkv = (a.num_heads + 2 * a.num_kv_heads) * a.head_dim;
    const double norms = a.qk_norm ? 2 * static_cast<double>(a.head_dim) * kBf16Bytes : 0;
    const double biases = a.bias ? static_cast<double>(qkv + hidden) * kBf16Bytes : 0;
    return Bytes(storage, qkv, hidden) + Bytes(storage, hidden, a.num_heads * a.head_dim) + norms +
           biases;
  }
  const int64_t query = a.num_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim);
  const int64_t query_in = a.q_lora_rank > 0 ? a.q_lora_rank : hidden;
  const int64_t down = a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim;
  const int64_t kv_up = a.num_heads * (a.qk_nope_head_dim + a.v_head_dim);
  return Bytes(storage, down, hidden) + Bytes(storage, query, query_in) +
         static_cast<double>(a.q_lora_rank + a.kv_lora_rank) * kBf16Bytes +
         Bytes(storage, kv_up, a.kv_lora_rank) + Bytes(storage, hidden, a.num_heads * a.v_head_dim);
}

double MoeLayerBytes(const Model& model) {
  const auto experts = static_cast<double>(model.num_experts);
  const double router = experts * static_cast<double>(model.hidden_size) * kBf16Bytes +
                        (model.router.has_bias ? experts * kFp32Bytes : 0);
  return experts * ExpertBytes(model, model.experts) + router +
         Bytes(model.shared, 3 * model.shared_intermediate_size, model.hidden_size);
}

}  // namespace

int64_t Model::num_dense_layers() const {
  return std::count(layer_kinds.begin(), layer_kinds.end(), LayerKind::kDense);
}

double BitsPerWeight(const WeightStorage& storage) {
  const WeightStorage usual = StorageOf(storage.format);
  const auto group =
      static_cast<double>(storage.group_size > 0 ? storage.group_size : usual.group_size);
  switch (storage.format) {
    case WeightFormat::kBf16:
      return 16;
    case WeightFormat::kFp8Block:  // One fp32 scale for 16,384 weights is 0.02%: left out.
    case WeightFormat::kFp8:
      return 8;
    case WeightFormat::kInt4G32:
    case WeightFormat::kInt4G128:
      return 4 + 16 / group;
    case WeightFormat::kNvfp4:
    case WeightFormat::kMxfp4:
      return 4 + 8 / group;
    case WeightFormat::kInt4G32Sparse24:
      // Of four weights two are kept: 4 bits each, and 2 bits each for their place.
      return 3 + 16 / group;
  }
  return 16;
}

WeightStorage StorageOf(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp8Block:
      return {.format = format, .group_size = 128, .block_rows = 128};
    case WeightFormat::kInt4G32:
    case WeightFormat::kMxfp4:
    case WeightFormat::kInt4G32Sparse24:
      return {.format = format, .group_size = 32};
    case WeightFormat::kInt4G128:
      return {.format = format, .group_size = 128};
    case WeightFormat::kNvfp4:
      return {.format = format, .group_size = 16};
    case WeightFormat::kBf16:
    case WeightFormat::kFp8:
      break;
  }
  return {.format = format};
}

double ExpertBytes(const Model& model, const WeightStorage& storage) {
  return Bytes(storage, 3 * model.moe_intermediate_size, model.hidden_size);
}

double ModelBytes(const Model& model) {
  const double embedding =
      static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size) * kBf16Bytes;
  const double head =
      model.tie_word_embeddings ? 0 : Bytes(model.lm_head, model.vocab_size, model.hidden_size);
  const double norms = static_cast<double>(2 * model.num_layers + 1) *
                       static_cast<double>(model.hidden_size) * kBf16Bytes;
  const double dense = Bytes(model.dense, 3 * model.dense_intermediate_size, model.hidden_size);
  return embedding + head + norms + static_cast<double>(model.num_layers) * AttentionBytes(model) +
         static_cast<double>(model.num_dense_layers()) * dense +
         static_cast<double>(model.num_moe_layers()) * MoeLayerBytes(model);
}

}  // namespace lastflop
