#include <algorithm>
#include <cmath>

#include "step/step_builder.h"

namespace lastflop {

void StepBuilder::AddGqa() {
  const AttentionDims& a = model_.attention;
  const int64_t heads = a.num_heads / layout_.tensor;
  const int64_t kv_heads = std::max<int64_t>(1, a.num_kv_heads / layout_.tensor);
  const int64_t width = (heads + 2 * kv_heads) * a.head_dim;
  AddGemm("attention.qkv", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = width,
           .in_features = model_.hidden_size,
           .storage = model_.attention_weights,
           .bias = a.bias},
          Tensor::kNormed, Tensor::kQkv, Weight::kQkv);
  if (a.qk_norm) {
    AddPartNorm("attention.query_norm",
                {.size = a.head_dim, .stride = width, .parts = heads, .offset = 0}, Tensor::kQkv,
                Weight::kQueryNorm);
    AddPartNorm(
        "attention.key_norm",
        {.size = a.head_dim, .stride = width, .parts = kv_heads, .offset = heads * a.head_dim},
        Tensor::kQkv, Weight::kKeyNorm);
  }
  const RopeShape rope{.kind = AttentionKind::kGqa,
                       .num_sequences = num_sequences_,
                       .query_tokens = query_tokens_,
                       .context = context_,
                       .num_heads = heads,
                       .num_kv_heads = kv_heads,
                       .head_dim = a.head_dim,
                       .rotary_dim = a.rotary_dim,
                       .theta = model_.rope_theta,
                       .cache = plan_.attention_cache};
  Add("attention.rope", OpCategory::kAttention, rope, {.in = Tensor::kQkv, .out = Tensor::kQkv});
  AddAttend(heads, kv_heads);
  AddGemm("attention.output", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = model_.hidden_size,
           .in_features = heads * a.head_dim,
           .storage = model_.attention_weights,
           .bias = a.bias && layout_.tensor_rank == 0},  // Once in the sum over ranks.
          Tensor::kAttentionOut, Tensor::kHidden, Weight::kAttentionOut);
}

void StepBuilder::AddMla() {
  const AttentionDims& a = model_.attention;
  const int64_t heads = a.num_heads / layout_.tensor;
  const int64_t latents = a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim;
  const int64_t query_dim = a.qk_nope_head_dim + a.qk_rope_head_dim;
  const int64_t cache_row = a.kv_lora_rank + a.qk_rope_head_dim;
  // Latents are the same on every rank: the down projections are not divided.
  AddGemm("attention.mla_down", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = latents,
           .in_features = model_.hidden_size,
           .storage = model_.attention_weights},
          Tensor::kNormed, Tensor::kMlaLatents, Weight::kMlaDown);
  if (a.q_lora_rank > 0) {
    AddPartNorm("attention.query_latent_norm", {.size = a.q_lora_rank, .stride = latents},
                Tensor::kMlaLatents, Weight::kMlaQueryNorm);
  }
  AddPartNorm("attention.kv_latent_norm",
              {.size = a.kv_lora_rank, .stride = latents, .offset = a.q_lora_rank},
              Tensor::kMlaLatents, Weight::kMlaKvNorm);
  AddMlaQuery();
  Add("attention.absorb", OpCategory::kDense,
      HeadGemmShape{.num_tokens = num_tokens_,
                    .num_heads = heads,
                    .out_features = a.kv_lora_rank,
                    .in_features = a.qk_nope_head_dim,
                    .in_stride = query_dim,
                    .out_stride = cache_row},
      {.in = Tensor::kMlaQuery, .out = Tensor::kMlaAbsorbed, .weight = Weight::kMlaKeyUp});
  // Rotates the query's tail into the absorbed query and writes normed latent and rotated key.
  Add("attention.rope", OpCategory::kAttention,
      RopeShape{.kind = AttentionKind::kMla,
                .num_sequences = num_sequences_,
                .query_tokens = query_tokens_,
                .context = context_,
                .num_heads = heads,
                .num_kv_heads = 1,
                .rotary_dim = a.qk_rope_head_dim,
                .kv_lora_rank = a.kv_lora_rank,
                .qk_nope_head_dim = a.qk_nope_head_dim,
                .qk_rope_head_dim = a.qk_rope_head_dim,
                .theta = model_.rope_theta,
                .cache = plan_.attention_cache},
      {.in = Tensor::kMlaQuery, .in2 = Tensor::kMlaLatents, .out = Tensor::kMlaAbsorbed});
  AddAttend(heads, 1);
  Add("attention.value_up", OpCategory::kDense,
      HeadGemmShape{.num_tokens = num_tokens_,
                    .num_heads = heads,
                    .out_features = a.v_head_dim,
                    .in_features = a.kv_lora_rank,
                    .in_stride = a.kv_lora_rank,
                    .out_stride = a.v_head_dim},
      {.in = Tensor::kMlaLatentOut, .out = Tensor::kAttentionOut, .weight = Weight::kMlaValueUp});
  AddGemm("attention.output", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = model_.hidden_size,
           .in_features = heads * a.v_head_dim,
           .storage = model_.attention_weights,
           .bias = a.bias && layout_.tensor_rank == 0},
          Tensor::kAttentionOut, Tensor::kHidden, Weight::kAttentionOut);
}

void StepBuilder::AddMlaQuery() {
  const AttentionDims& a = model_.attention;
  GemmShape shape{
      .num_tokens = num_tokens_,
      .out_features = a.num_heads / layout_.tensor * (a.qk_nope_head_dim + a.qk_rope_head_dim),
      .in_features = a.q_lora_rank > 0 ? a.q_lora_rank : model_.hidden_size,
      .storage = model_.attention_weights};
  Tensor in = Tensor::kNormed;
  if (a.q_lora_rank > 0) {
    in = Tensor::kMlaLatents;
    shape.in_stride = a.q_lora_rank + a.kv_lora_rank + a.qk_rope_head_dim;
  }
  AddGemm("attention.query_up", OpCategory::kDense, shape, in, Tensor::kMlaQuery,
          Weight::kMlaQueryUp);
}

void StepBuilder::AddAttend(int64_t num_heads, int64_t num_kv_heads) {
  const AttentionDims& a = model_.attention;
  const bool is_gqa = a.kind == AttentionKind::kGqa;
  const int64_t scored = is_gqa ? a.head_dim : a.qk_nope_head_dim + a.qk_rope_head_dim;
  const AttentionShape shape{.kind = a.kind,
                             .num_sequences = num_sequences_,
                             .query_tokens = query_tokens_,
                             .context = context_,
                             .num_heads = num_heads,
                             .num_kv_heads = num_kv_heads,
                             .head_dim = is_gqa ? a.head_dim : 0,
                             .kv_lora_rank = a.kv_lora_rank,
                             .qk_rope_head_dim = a.qk_rope_head_dim,
                             .softmax_scale = 1.0 / std::sqrt(static_cast<double>(scored)),
                             .cache = plan_.attention_cache};
  Add("attention.attend", OpCategory::kAttention, shape,
      {.in = is_gqa ? Tensor::kQkv : Tensor::kMlaAbsorbed,
       .out = is_gqa ? Tensor::kAttentionOut : Tensor::kMlaLatentOut});
}

}  // namespace lastflop
