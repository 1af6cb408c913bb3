#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "common/campaign.h"
#include "common/model.h"
#include "step/make_step.h"

namespace lastflop {

// What routing is expected to give the ranks of an expert-parallel group in one MoE layer.
struct LoadEstimate {
  ExpertLoad mean_rank;
  ExpertLoad most_loaded_rank;  // Mean over layers of the layer's most loaded rank.
};

// The chance that one token's top_k hold an expert, for each expert by falling popularity; they sum
// to top_k. Popularity r^-exponent chosen without replacement: 1 - exp(-lambda p_r), the chance
// that a race of exponentials reaches the expert by the time that top_k are in on average.
std::vector<double> InclusionByPopularity(const std::vector<double>& popularity, int64_t top_k);

// Loads without drawing routes (step/routing.h draws them, in milliseconds): expected values in
// closed form, the most loaded rank by a fixed set of ways to spread popular experts over ranks.
// Groups of a router are not modelled. Remembers what it computed. One thread at a time.
class LoadEstimator {
 public:
  // The model outlives the estimator.
  explicit LoadEstimator(const Model& model) : model_(model) {}

  // `num_tokens` choose experts that are split over `expert_groups` ranks. `opportunistic_keep` and
  // `redundant_experts` as in the plan: spare copies of the most popular experts take load off the
  // rank that has most. InvalidArgument: no experts, or more groups than experts; a trace without
  // popularity.
  absl::StatusOr<LoadEstimate> Estimate(const Routing& routing, int64_t num_tokens,
                                        int64_t expert_groups, int64_t opportunistic_keep,
                                        int64_t redundant_experts);

 private:
  // Popularity that a routing depends on: distribution, exponent, top_k; a trace is told by its
  // file name and address.
  using RoutingKey = std::tuple<int, double, const void*, int64_t>;
  const std::vector<double>& Inclusion(const Routing& routing, int64_t top_k);

  const Model& model_;  // Outlives this.
  std::map<RoutingKey, std::vector<double>> inclusion_;
  std::map<std::tuple<RoutingKey, int64_t, int64_t, int64_t, int64_t>, LoadEstimate> loads_;
};

}  // namespace lastflop
