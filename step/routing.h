#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/model.h"
#include "step/make_step.h"

namespace lastflop {

// Router scores for one layer of one draw: [num_tokens, num_experts] fp32, made so that the model's
// own router rule (RouterShape) chooses experts with the asked distribution: popularity-weighted
// choice without replacement by adding Gumbel noise to log popularity. The router kernel then runs
// on these scores, so routing is data of the timed step.
//
// zipf: popularity r^-exponent under a permutation of experts that depends on (seed, layer);
// balanced: every expert gets floor or ceil of num_tokens * top_k / num_experts pairs, spread so
// that contiguous groups of experts are level too (8 tokens, top-8, 256 experts, 16 ranks: 4 pairs
// each); all_to_one: every token chooses the same top_k experts.
// `draw` selects fresh noise; the permutation does not depend on it.
absl::StatusOr<std::vector<float>> MakeRouterScores(const Model& model, const Routing& routing,
                                                    int64_t num_tokens, int layer, int64_t draw);

// The experts of each token: [num_tokens, top_k]; plain reference of the router rule without
// weights. `opportunistic_keep` as RouterShape.
std::vector<int32_t> ChooseExperts(const Model& model, const std::vector<float>& scores,
                                   int64_t num_tokens, int64_t opportunistic_keep);

// Load of every expert-parallel rank: experts split contiguously, sums to num_tokens * top_k.
std::vector<ExpertLoad> LoadPerRank(const Model& model, const std::vector<int32_t>& expert_ids,
                                    int64_t expert_parallel);

// The mean of one rank's loads over layers; zero of none.
ExpertLoad MeanLoad(const std::vector<ExpertLoad>& of_layers);

// The rank that takes longest, of at least one: most unique experts, then most pairs. Time at small
// batches is bytes.
int64_t MostLoadedRank(const std::vector<ExpertLoad>& loads);

// Exchanges the columns of two of `num_groups` contiguous groups of experts in scores [num_tokens,
// num_experts]: tokens that chose one then choose the other.
void ExchangeGroups(int64_t num_experts, int64_t num_groups, int64_t group, int64_t other,
                    std::vector<float>& scores);

// Expected unique experts of `num_tokens` tokens under uniform top-k: E (1 - (1 - k/E)^M).
double ExpectedUniqueExperts(int64_t num_experts, int64_t top_k, int64_t num_tokens);

// Expected load of the mean rank and of the most loaded rank, by sampling `num_draws` draws
// (closed form where one exists). All-rank unique experts in `total_unique`.
struct ExpectedLoad {
  ExpertLoad mean_rank;
  ExpertLoad most_loaded_rank;
  double total_unique = 0;
  double imbalance = 1;
};
absl::StatusOr<ExpectedLoad> EstimateLoad(const Model& model, const Routing& routing,
                                          int64_t num_tokens, int64_t expert_parallel,
                                          int64_t opportunistic_keep, int num_draws);

// What EstimateLoad samples, which is the same however experts are spread over ranks.
struct SampledPairs {
  std::vector<std::vector<double>> of_experts;  // [draw][expert]: pairs of one MoE layer.
  // Closed form, where one exists, of how many experts have any.
  std::optional<double> unique_experts;
};

// InvalidArgument: no draw, a model without MoE layers or experts; as MakeRouterScores.
absl::StatusOr<SampledPairs> SamplePairs(const Model& model, const Routing& routing,
                                         int64_t num_tokens, int64_t opportunistic_keep,
                                         int num_draws);

// InvalidArgument: more groups than experts, or none.
absl::StatusOr<ExpectedLoad> LoadOfPairs(const SampledPairs& sampled, int64_t expert_parallel);

}  // namespace lastflop
