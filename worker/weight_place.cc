#include "worker/weight_place.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace lastflop {
namespace {

// Streams of the counter-based generator: one a tensor of the model.
uint64_t StreamOf(Weight weight, int layer, bool is_bias) {
  return (static_cast<uint64_t>(weight) << 32U) + (static_cast<uint64_t>(layer + 1) << 1U) +
         (is_bias ? 1 : 0);
}

// Uniform values in +-amplitude have variance 1 / in_features.
float AmplitudeOf(int64_t in_features, const WeightData& data) {
  return data.zeros ? 0.0F : static_cast<float>(std::sqrt(3.0 / static_cast<double>(in_features)));
}

// A rank's rows and columns of a projection of the model.
struct Slice {
  int64_t num_matrices = 1;
  int64_t first_matrix = 0;
  int64_t rows_full = 0;
  std::vector<int64_t> part_rows;
  std::vector<int64_t> part_begin;
  int64_t cols_full = 0;
  int64_t cols = 0;
  int64_t col_begin = 0;
};

// Rows [index * rows / slices, ...) of each of `parts` equal parts.
Slice ByRows(int64_t part_rows, int64_t parts, int64_t cols, int64_t slices, int64_t index) {
  Slice slice{.rows_full = parts * part_rows, .cols_full = cols, .cols = cols};
  const int64_t rows = part_rows / slices;
  for (int64_t part = 0; part < parts; ++part) {
    slice.part_rows.push_back(rows);
    slice.part_begin.push_back(part * part_rows + index * rows);
  }
  return slice;
}

Slice ByColumns(int64_t rows, int64_t cols, int64_t slices, int64_t index) {
  return {.rows_full = rows,
          .part_rows = {rows},
          .part_begin = {0},
          .cols_full = cols,
          .cols = cols / slices,
          .col_begin = index * (cols / slices)};
}

Slice OfMatrices(int64_t first, int64_t num_matrices, Slice slice) {
  slice.first_matrix = first;
  slice.num_matrices = num_matrices;
  return slice;
}

// Query, key and value rows of the rank's heads; KV heads fewer than ranks are shared by
// neighbours.
Slice OfQkv(const AttentionDims& a, int64_t hidden, const Layout& layout) {
  const int64_t heads = a.num_heads / layout.tensor;
  const int64_t kv_heads = std::max<int64_t>(1, a.num_kv_heads / layout.tensor);
  const int64_t first_kv = layout.tensor_rank * a.num_kv_heads / layout.tensor;
  return {
      .rows_full = (a.num_heads + 2 * a.num_kv_heads) * a.head_dim,
      .part_rows = {heads * a.head_dim, kv_heads * a.head_dim, kv_heads * a.head_dim},
      .part_begin = {layout.tensor_rank * heads * a.head_dim, (a.num_heads + first_kv) * a.head_dim,
                     (a.num_heads + a.num_kv_heads + first_kv) * a.head_dim},
      .cols_full = hidden,
      .cols = hidden};
}

Slice OfVocabulary(const Model& model, const Layout& layout) {
  const int64_t rows = (model.vocab_size + layout.tensor - 1) / layout.tensor;
  const int64_t begin = std::min(rows * layout.tensor_rank, model.vocab_size);
  return {.rows_full = model.vocab_size,
          .part_rows = {std::min(rows, model.vocab_size - begin)},
          .part_begin = {begin},
          .cols_full = model.hidden_size,
          .cols = model.hidden_size};
}

absl::StatusOr<Slice> SliceOfAttention(const Model& model, const Layout& layout, Weight weight) {
  const AttentionDims& a = model.attention;
  const int64_t hidden = model.hidden_size;
  const int64_t tensor = layout.tensor;
  const int64_t rank = layout.tensor_rank;
  const int64_t heads = a.num_heads / tensor;
  const int64_t value_dim = a.kind == AttentionKind::kGqa ? a.head_dim : a.v_head_dim;
  switch (weight) {
    case Weight::kQkv:
      return OfQkv(a, hidden, layout);
    case Weight::kAttentionOut:
      return ByColumns(hidden, a.num_heads * value_dim, tensor, rank);
    case Weight::kMlaDown:
      return ByRows(a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim, 1, hidden, 1, 0);
    case Weight::kMlaQueryUp:
      return ByRows(a.num_heads * (a.qk_nope_head_dim + a.qk_rope_head_dim), 1,
                    a.q_lora_rank > 0 ? a.q_lora_rank : hidden, tensor, rank);
    case Weight::kMlaKeyUp:
      return OfMatrices(rank * heads, heads, ByRows(a.kv_lora_rank, 1, a.qk_nope_head_dim, 1, 0));
    case Weight::kMlaValueUp:
      return OfMatrices(rank * heads, heads, ByRows(a.v_head_dim, 1, a.kv_lora_rank, 1, 0));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("weight ", static_cast<int>(weight), " is not a matrix"));
  }
}

absl::StatusOr<Slice> SliceOf(const Model& model, const Layout& layout, Weight weight) {
  const int64_t hidden = model.hidden_size;
  const int64_t tensor = layout.tensor;
  const int64_t rank = layout.tensor_rank;
  switch (weight) {
    case Weight::kFfnGateUp:
      return ByRows(model.dense_intermediate_size, 2, hidden, tensor, rank);
    case Weight::kFfnDown:
      return ByColumns(hidden, model.dense_intermediate_size, tensor, rank);
    case Weight::kSharedGateUp:
      return ByRows(model.shared_intermediate_size, 2, hidden, tensor, rank);
    case Weight::kSharedDown:
      return ByColumns(hidden, model.shared_intermediate_size, tensor, rank);
    case Weight::kRouter:
      return ByRows(model.num_experts, 1, hidden, 1, 0);
    case Weight::kExpertGateUp:
      return OfMatrices(layout.first_expert, layout.num_local_experts,
                        ByRows(model.moe_intermediate_size, 2, hidden, layout.expert_slices,
                               rank % layout.expert_slices));
    case Weight::kExpertDown:
      return OfMatrices(layout.first_expert, layout.num_local_experts,
                        ByColumns(hidden, model.moe_intermediate_size, layout.expert_slices,
                                  rank % layout.expert_slices));
    case Weight::kLmHead:
    case Weight::kEmbedding:
      return OfVocabulary(model, layout);
    default:
      return SliceOfAttention(model, layout, weight);
  }
}

}  // namespace

std::string WeightPlace::Key() const {
  return absl::StrCat("weight ", static_cast<int>(weight), " layer ", layer, is_bias ? " bias" : "",
                      form == WeightForm::kRows ? " rows " : " packed ", ToWord(storage.format),
                      "/", storage.group_size, " matrices ", slice.first_matrix, "+", num_matrices,
                      " rows ", absl::StrJoin(slice.part_row_begin, ","), "+",
                      absl::StrJoin(part_rows, ","), " of ", slice.rows_full, " cols ",
                      slice.col_begin, "+", cols, " of ", slice.cols_full,
                      slice.amplitude == 0 ? " zeros" : "");
}

absl::StatusOr<WeightPlace> PlaceOfWeight(const Model& model, const Layout& layout, Weight weight,
                                          int layer, const WeightStorage& storage,
                                          const WeightData& data) {
  LASTFLOP_ASSIGN_OR_RETURN(Slice slice, SliceOf(model, layout, weight));
  return WeightPlace{.weight = weight,
                     .layer = layer,
                     .storage = storage,
                     .num_matrices = slice.num_matrices,
                     .part_rows = std::move(slice.part_rows),
                     .cols = slice.cols,
                     .slice = {.seed = data.seed,
                               .stream = StreamOf(weight, layer, false),
                               .amplitude = AmplitudeOf(slice.cols_full, data),
                               .rows_full = slice.rows_full,
                               .cols_full = slice.cols_full,
                               .first_matrix = slice.first_matrix,
                               .part_row_begin = std::move(slice.part_begin),
                               .col_begin = slice.col_begin}};
}

WeightPlace PlaceOfEmbedding(const Model& model, const EmbeddingShape& shape,
                             const WeightData& data) {
  // The rows of the same tensor that a tied LM head multiplies.
  return {.weight = Weight::kEmbedding,
          .form = WeightForm::kRows,
          .part_rows = {shape.vocab_rows},
          .cols = shape.hidden_size,
          .slice = {.seed = data.seed,
                    .stream = StreamOf(Weight::kEmbedding, -1, false),
                    .amplitude = AmplitudeOf(shape.hidden_size, data),
                    .rows_full = model.vocab_size,
                    .cols_full = shape.hidden_size,
                    .part_row_begin = {shape.vocab_begin}}};
}

WeightPlace PlaceOfGain(Weight weight, int layer, int64_t size, const WeightData& data) {
  return {.weight = weight,
          .layer = layer,
          .form = WeightForm::kRows,
          .part_rows = {size},
          .cols = 1,
          .slice = {.seed = data.seed,
                    .stream = StreamOf(weight, layer, false),
                    .amplitude = AmplitudeOf(1, data),  // Variance 1 keeps activations in range.
                    .rows_full = size,
                    .cols_full = 1,
                    .part_row_begin = {0}}};
}

WeightPlace PlaceOfBias(const WeightPlace& place) {
  WeightPlace bias = place;
  bias.is_bias = true;
  bias.form = WeightForm::kRows;
  bias.storage = {};
  bias.num_matrices = 1;
  bias.cols = 1;
  bias.slice.stream = StreamOf(place.weight, place.layer, true);
  bias.slice.amplitude = place.slice.amplitude == 0 ? 0.0F : 1.0F;
  bias.slice.cols_full = 1;
  bias.slice.col_begin = 0;
  return bias;
}

}  // namespace lastflop
