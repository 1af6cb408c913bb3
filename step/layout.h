#pragma once

#include <cstdint>
#include <vector>

#include "common/campaign.h"
#include "common/model.h"
#include "common/plan.h"

namespace lastflop {

// What one rank of a plan holds. Ranks are numbered stage by stage, replica by replica:
// rank = (stage * data + replica) * tensor + tensor_rank.
//
// Three ways to spread experts (docs: DESIGN "Plan fields"):
// - expert 1: every expert's intermediate is sliced over `tensor`.
// - expert dividing tensor, tensor attention: experts are split over `expert` groups inside each
//   tensor group, and an expert is sliced over the tensor / expert ranks of its group. Tokens are
//   on every rank; an all-reduce sums. data > 1 adds independent replicas.
// - data attention (attention: data, or data > 1 with expert = tensor * data): every rank of
//   tensor * data has sequences of its own and whole attention weights, embedding, dense and shared
//   experts; each holds 1 / expert of the experts, reached by all-to-all.
struct Layout {
  bool data_attention = false;
  int64_t tensor = 1;  // Ranks that share tokens and slice what is not an expert; all-reduce size.
  int64_t tensor_rank = 0;
  int64_t num_replicas = 1;  // Groups with sequences of their own.
  int64_t replica = 0;
  int64_t num_stages = 1;
  int64_t stage = 0;
  int64_t expert_groups = 1;  // Expert-parallel degree.
  int64_t expert_group = 0;
  int64_t expert_slices = 1;  // Ranks that share one expert.
  int64_t first_expert = 0;
  int64_t num_local_experts = 0;
  int first_layer = 0;  // Of this stage: [first_layer, end_layer).
  int end_layer = 0;
  std::vector<int> tensor_group;  // Global ranks of the all-reduce, in order of tensor_rank.
  std::vector<int> expert_ranks;  // Global ranks of the all-to-all, in order of expert_group.
};

// Whether sequences are spread over all ranks of tensor * data and experts reached by all-to-all.
bool IsDataAttention(const Plan& plan);

// Groups of ranks with sequences of their own: data-parallel replicas, or all ranks of a stage
// under data attention.
int64_t NumReplicas(const Plan& plan);

// How many ranks work at the same moment at most: those of the stages that have a micro-batch.
int64_t RanksAtOnce(const Plan& plan);

// The layout of `rank`, in [0, plan.num_ranks()). The plan has passed CheckFeasible.
Layout MakeLayout(const Model& model, const Plan& plan, int rank);

// Sequences of `replica`: batch / num_replicas, the first ones taking the remainder, so that rank 0
// is always among the most loaded.
int64_t SequencesOfReplica(int64_t batch, int64_t num_replicas, int64_t replica);

// Query tokens of a sequence in one step: draft + 1 when decoding, the prompt in prefill.
int64_t QueryTokens(const Plan& plan, const Point& point);

// How the plan stores routed experts: moe.weights, or as the model stores them.
WeightStorage ExpertStorage(const Model& model, const Plan& plan);

}  // namespace lastflop
