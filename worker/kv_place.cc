#include "worker/kv_place.h"

#include "absl/strings/str_cat.h"

namespace lastflop {

KvSlice KvSliceOf(const Model& model, const Layout& layout, const AttentionShape& shape,
                  int64_t first_sequence) {
  const bool is_gqa = shape.kind == AttentionKind::kGqa;
  const int64_t kv_heads = is_gqa ? model.attention.num_kv_heads : 1;
  return {.first_sequence = first_sequence,
          .first_kv_head = is_gqa ? layout.tensor_rank * kv_heads / layout.tensor : 0,
          .num_kv_heads_full = kv_heads};
}

std::string KvCacheKey(const AttentionShape& shape, const KvSlice& slice, int layer, bool zeros) {
  return absl::StrCat("kv cache layer ", layer, " ", ToWord(shape.kind), " ", ToWord(shape.cache),
                      " sequences ", slice.first_sequence, "+", shape.num_sequences, " context ",
                      shape.context, "+", shape.query_tokens, " heads ", slice.first_kv_head, "+",
                      shape.num_kv_heads, " of ", slice.num_kv_heads_full, " width ",
                      shape.head_dim, ",", shape.kv_lora_rank, ",", shape.qk_rope_head_dim,
                      zeros ? " zeros" : "");
}

}  // namespace lastflop
