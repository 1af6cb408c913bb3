#include "step/layout.h"

#include <algorithm>

namespace lastflop {

bool IsDataAttention(const Plan& plan) {
  const auto& parallel = plan.parallel;
  const int64_t ranks = parallel.tensor * parallel.data;
  return parallel.expert > 1 && parallel.expert == ranks &&
         (parallel.attention == AttentionParallel::kData || parallel.data > 1);
}

int64_t NumReplicas(const Plan& plan) {
  return IsDataAttention(plan) ? plan.parallel.tensor * plan.parallel.data : plan.parallel.data;
}

int64_t RanksAtOnce(const Plan& plan) {
  const auto& parallel = plan.parallel;
  return parallel.tensor * parallel.data * std::min(parallel.pipeline, parallel.micro_batches);
}

Layout MakeLayout(const Model& model, const Plan& plan, int rank) {
  const auto& parallel = plan.parallel;
  const int64_t stage_ranks = parallel.tensor * parallel.data;
  const int64_t rank_in_stage = rank % stage_ranks;
  const auto first_of_stage = static_cast<int>(rank - rank_in_stage);

  Layout layout;
  layout.data_attention = IsDataAttention(plan);
  layout.num_stages = parallel.pipeline;
  layout.stage = rank / stage_ranks;
  layout.first_layer = static_cast<int>(layout.stage * model.num_layers / parallel.pipeline);
  layout.end_layer = static_cast<int>((layout.stage + 1) * model.num_layers / parallel.pipeline);
  layout.tensor = layout.data_attention ? 1 : parallel.tensor;
  layout.num_replicas = NumReplicas(plan);
  layout.replica = rank_in_stage / layout.tensor;
  layout.tensor_rank = rank_in_stage % layout.tensor;
  layout.expert_groups = parallel.expert;
  layout.expert_slices = layout.data_attention ? 1 : parallel.tensor / parallel.expert;
  layout.expert_group =
      layout.data_attention ? rank_in_stage : layout.tensor_rank / layout.expert_slices;
  layout.num_local_experts =
      (model.num_experts + plan.moe.redundant_experts) / layout.expert_groups;
  layout.first_expert = layout.expert_group * (model.num_experts / layout.expert_groups);
  layout.tensor_group.reserve(static_cast<size_t>(layout.tensor));
  for (int64_t i = 0; i < layout.tensor; ++i) {
    layout.tensor_group.push_back(
        static_cast<int>(first_of_stage + layout.replica * layout.tensor + i));
  }
  if (layout.data_attention) {
    for (int64_t i = 0; i < stage_ranks; ++i) {
      layout.expert_ranks.push_back(static_cast<int>(first_of_stage + i));
    }
  }
  return layout;
}

int64_t SequencesOfReplica(int64_t batch, int64_t num_replicas, int64_t replica) {
  return batch / num_replicas + (replica < batch % num_replicas ? 1 : 0);
}

int64_t QueryTokens(const Plan& plan, const Point& point) {
  return point.phase == Phase::kPrefill ? point.context : plan.speculative.draft_tokens + 1;
}

WeightStorage ExpertStorage(const Model& model, const Plan& plan) {
  if (!plan.moe.weights.has_value() || *plan.moe.weights == model.experts.format) {
    return model.experts;  // With the model's own group and block sizes.
  }
  return StorageOf(*plan.moe.weights);
}

}  // namespace lastflop
