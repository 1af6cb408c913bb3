#include "step/padded_experts.h"
#include "step/step_builder.h"

namespace lastflop {

void StepBuilder::AddDenseFfn() {
  const int64_t intermediate = model_.dense_intermediate_size / layout_.tensor;
  AddGemm("ffn.gate_up", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = 2 * intermediate,
           .in_features = model_.hidden_size,
           .storage = model_.dense},
          Tensor::kNormed, Tensor::kFfn, Weight::kFfnGateUp);
  Add("ffn.swiglu", OpCategory::kDense,
      ActivationShape{.rows = num_tokens_, .intermediate_size = intermediate},
      {.in = Tensor::kFfn, .out = Tensor::kFfnAct});
  AddGemm("ffn.down", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = model_.hidden_size,
           .in_features = intermediate,
           .storage = model_.dense},
          Tensor::kFfnAct, Tensor::kHidden, Weight::kFfnDown);
  AddAllReduce("all_reduce.ffn");
}

void StepBuilder::AddMoe() {
  AddRouter();
  AddSharedExperts();
  AddDispatch();
  if (plan_.moe.kernel == MoeKernel::kPlugin) {
    AddFusedExperts();  // What a plugin does with the routing is its own, and part of its time.
  } else {
    AddPermutedExperts();
  }
  if (layout_.data_attention) {
    Add("moe.combine_all_to_all", OpCategory::kCollective,
        AllToAllShape{.num_tokens = num_tokens_,
                      .top_k = model_.top_k,
                      .hidden_size = model_.hidden_size,
                      .num_experts = model_.num_experts,
                      .ranks = layout_.expert_groups,
                      .combine = true,
                      .algorithm = plan_.collectives.all_to_all,
                      .payload = ActivationFormat::kBf16},
        {.in = Tensor::kExpertSum,
         .in2 = model_.shared_intermediate_size > 0 ? Tensor::kSharedOut : Tensor::kNone,
         .out = Tensor::kHidden});
  } else {
    AddAllReduce("all_reduce.moe");
  }
}

void StepBuilder::AddPermutedExperts() {
  Add("moe.permute", OpCategory::kRouter,
      PermuteShape{.num_tokens = expert_tokens_,
                   .top_k = model_.top_k,
                   .num_experts = model_.num_experts,
                   .first_expert = layout_.first_expert,
                   .num_local_experts = layout_.num_local_experts},
      {.in = Tensor::kRouting, .out = Tensor::kPairs});
  AddSeparateDequant();
  if (plan_.moe.kernel == MoeKernel::kFused) {
    AddFusedExperts();
  } else if (plan_.moe.kernel == MoeKernel::kCublaslt) {
    AddPaddedExperts();
  } else {
    AddGroupedExperts();
  }
}

void StepBuilder::AddRouter() {
  AddGemm("router.gemm", OpCategory::kRouter,
          {.num_tokens = num_tokens_,
           .out_features = model_.num_experts,
           .in_features = model_.hidden_size,
           .storage = {},  // bf16, whatever the format of the experts.
           .fp32_out = true},
          Tensor::kNormed, Tensor::kRouterScores, Weight::kRouter);
  Add("router.top_k", OpCategory::kRouter,
      RouterShape{.num_tokens = num_tokens_,
                  .num_experts = model_.num_experts,
                  .top_k = model_.top_k,
                  .router = model_.router,
                  .opportunistic_keep = plan_.moe.opportunistic_keep},
      {.in = Tensor::kRouterScores,
       .out = Tensor::kRouting,
       .weight = model_.router.has_bias ? Weight::kRouterBias : Weight::kNone});
}

void StepBuilder::AddSharedExperts() {
  if (model_.shared_intermediate_size == 0) {
    return;
  }
  const int64_t intermediate = model_.shared_intermediate_size / layout_.tensor;
  AddGemm("shared.gate_up", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = 2 * intermediate,
           .in_features = model_.hidden_size,
           .storage = model_.shared},
          Tensor::kNormed, Tensor::kFfn, Weight::kSharedGateUp);
  Add("shared.swiglu", OpCategory::kDense,
      ActivationShape{.rows = num_tokens_, .intermediate_size = intermediate},
      {.in = Tensor::kFfn, .out = Tensor::kFfnAct});
  AddGemm("shared.down", OpCategory::kDense,
          {.num_tokens = num_tokens_,
           .out_features = model_.hidden_size,
           .in_features = intermediate,
           .storage = model_.shared},
          Tensor::kFfnAct, Tensor::kSharedOut, Weight::kSharedDown);
}

void StepBuilder::AddDispatch() {
  if (!layout_.data_attention) {
    return;
  }
  Add("moe.dispatch", OpCategory::kCollective,
      AllToAllShape{.num_tokens = num_tokens_,
                    .top_k = model_.top_k,
                    .hidden_size = model_.hidden_size,
                    .num_experts = model_.num_experts,
                    .ranks = layout_.expert_groups,
                    .algorithm = plan_.collectives.all_to_all,
                    .payload = plan_.collectives.payload},
      {.in = Tensor::kNormed, .in2 = Tensor::kRouting, .out = Tensor::kExpertInput});
}

void StepBuilder::AddSeparateDequant() {
  if (plan_.moe.dequant != Dequant::kSeparate) {
    return;
  }
  const int64_t intermediate = model_.moe_intermediate_size / layout_.expert_slices;
  const WeightStorage storage = ExpertStorage(model_, plan_);
  Add("moe.dequant_gate_up", OpCategory::kDequant,
      DequantShape{.num_local_experts = layout_.num_local_experts,
                   .out_features = 2 * intermediate,
                   .in_features = model_.hidden_size,
                   .storage = storage},
      {.in2 = Tensor::kPairs, .out = Tensor::kDequantGateUp, .weight = Weight::kExpertGateUp});
  Add("moe.dequant_down", OpCategory::kDequant,
      DequantShape{.num_local_experts = layout_.num_local_experts,
                   .out_features = model_.hidden_size,
                   .in_features = intermediate,
                   .storage = storage},
      {.in2 = Tensor::kPairs, .out = Tensor::kDequantDown, .weight = Weight::kExpertDown});
}

void StepBuilder::AddGroupedExperts() {
  const bool separate = plan_.moe.dequant == Dequant::kSeparate;
  // The grouped kernel applies SwiGLU to gate_up's sums; the plain one leaves it to an op of its
  // own.
  const bool swiglu_in_gemm = plan_.moe.kernel == MoeKernel::kGrouped;
  const int64_t intermediate = model_.moe_intermediate_size / layout_.expert_slices;
  ExpertGemmShape gemm{.num_tokens = expert_tokens_,
                       .top_k = model_.top_k,
                       .num_local_experts = layout_.num_local_experts,
                       .out_features = 2 * intermediate,
                       .in_features = model_.hidden_size,
                       .gather_tokens = true,
                       .swiglu = swiglu_in_gemm,
                       .storage = separate ? WeightStorage{} : ExpertStorage(model_, plan_),
                       .activations = plan_.moe.activations,
                       .tile_order = plan_.moe.tile_order,
                       .group_m = plan_.moe.group_m};
  const Tensor input = layout_.data_attention ? Tensor::kExpertInput : Tensor::kNormed;
  Add("moe.gate_up", OpCategory::kMoe, gemm,
      {.in = input,
       .in2 = Tensor::kPairs,
       .out = swiglu_in_gemm ? Tensor::kExpertAct : Tensor::kExpertGateUp,
       .weight = Weight::kExpertGateUp})
      .weights_dequantized = separate;
  if (!swiglu_in_gemm) {
    Add("moe.swiglu", OpCategory::kMoe,
        ActivationShape{.rows = expert_tokens_ * model_.top_k,
                        .intermediate_size = intermediate,
                        .rows_are_pairs = true},
        {.in = Tensor::kExpertGateUp, .in2 = Tensor::kPairs, .out = Tensor::kExpertAct});
  }
  gemm.out_features = model_.hidden_size;
  gemm.in_features = intermediate;
  gemm.gather_tokens = false;
  gemm.swiglu = false;
  Add("moe.down", OpCategory::kMoe, gemm,
      {.in = Tensor::kExpertAct,
       .in2 = Tensor::kPairs,
       .out = Tensor::kExpertOut,
       .weight = Weight::kExpertDown})
      .weights_dequantized = separate;
  Add("moe.combine", OpCategory::kMoe,
      CombineShape{.num_tokens = expert_tokens_,
                   .top_k = model_.top_k,
                   .hidden_size = model_.hidden_size,
                   .add_shared = model_.shared_intermediate_size > 0 && !layout_.data_attention},
      {.in = Tensor::kExpertOut,
       .in2 = Tensor::kPairs,
       .out = layout_.data_attention ? Tensor::kExpertSum : Tensor::kHidden});
}

void StepBuilder::AddPaddedExperts() {
  const int64_t rows = PaddedRows(expert_tokens_);
  const int64_t intermediate = model_.moe_intermediate_size / layout_.expert_slices;
  Add("moe.pad", OpCategory::kMoe,
      PadShape{.num_tokens = expert_tokens_,
               .top_k = model_.top_k,
               .num_local_experts = layout_.num_local_experts,
               .padded_rows = rows,
               .hidden_size = model_.hidden_size},
      {.in = layout_.data_attention ? Tensor::kExpertInput : Tensor::kNormed,
       .in2 = Tensor::kPairs,
       .out = Tensor::kExpertPadded});
  ExpertGemmShape gemm{.num_tokens = expert_tokens_,
                       .top_k = model_.top_k,
                       .num_local_experts = layout_.num_local_experts,
                       .out_features = 2 * intermediate,
                       .in_features = model_.hidden_size,
                       .storage = ExpertStorage(model_, plan_),
                       .activations = plan_.moe.activations,
                       .padded_rows = rows};
  Add("moe.gate_up", OpCategory::kMoe, gemm,
      {.in = Tensor::kExpertPadded,
       .in2 = Tensor::kPairs,
       .out = Tensor::kExpertGateUp,
       .weight = Weight::kExpertGateUp});
  Add("moe.swiglu", OpCategory::kMoe,
      ActivationShape{.rows = layout_.num_local_experts * rows,
                      .intermediate_size = intermediate,
                      .rows_are_pairs = true,
                      .is_padded = true},
      {.in = Tensor::kExpertGateUp, .in2 = Tensor::kPairs, .out = Tensor::kExpertAct});
  gemm.out_features = model_.hidden_size;
  gemm.in_features = intermediate;
  Add("moe.down", OpCategory::kMoe, gemm,
      {.in = Tensor::kExpertAct,
       .in2 = Tensor::kPairs,
       .out = Tensor::kExpertOut,
       .weight = Weight::kExpertDown});
  Add("moe.combine", OpCategory::kMoe,
      CombineShape{.num_tokens = expert_tokens_,
                   .top_k = model_.top_k,
                   .hidden_size = model_.hidden_size,
                   .add_shared = model_.shared_intermediate_size > 0 && !layout_.data_attention,
                   .is_padded = true},
      {.in = Tensor::kExpertOut,
       .in2 = Tensor::kPairs,
       .out = layout_.data_attention ? Tensor::kExpertSum : Tensor::kHidden});
}

void StepBuilder::AddFusedExperts() {
  const bool separate = plan_.moe.dequant == Dequant::kSeparate;
  const bool is_plugin = plan_.moe.kernel == MoeKernel::kPlugin;
  Add(is_plugin ? "moe.plugin" : "moe.fused", OpCategory::kMoe,
      FusedMoeShape{.num_tokens = expert_tokens_,
                    .top_k = model_.top_k,
                    .num_local_experts = layout_.num_local_experts,
                    .hidden_size = model_.hidden_size,
                    .moe_intermediate_size = model_.moe_intermediate_size / layout_.expert_slices,
                    .storage = separate ? WeightStorage{} : ExpertStorage(model_, plan_),
                    .tile_order = plan_.moe.tile_order,
                    .add_shared = model_.shared_intermediate_size > 0 && !layout_.data_attention},
      {.in = layout_.data_attention ? Tensor::kExpertInput : Tensor::kNormed,
       .in2 = is_plugin ? Tensor::kRouting : Tensor::kPairs,
       .out = layout_.data_attention ? Tensor::kExpertSum : Tensor::kHidden,
       .weight = Weight::kExpertGateUp})
      .weights_dequantized = separate;
}

}  // namespace lastflop
