#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "step/routing.h"

namespace lastflop {

namespace {

// By expert.
std::vector<double> CountPairs(const Model& model, const std::vector<int32_t>& expert_ids) {
  std::vector<double> pairs(static_cast<size_t>(model.num_experts), 0);
  for (const int32_t expert : expert_ids) {
    if (expert >= 0) {  // -1: the token has fewer experts than top_k.
      pairs[static_cast<size_t>(expert)] += 1;
    }
  }
  return pairs;
}

std::vector<ExpertLoad> SpreadOverRanks(const std::vector<double>& pairs, int64_t expert_parallel) {
  std::vector<ExpertLoad> loads(static_cast<size_t>(expert_parallel));
  const auto num_experts = static_cast<int64_t>(pairs.size());
  for (int64_t e = 0; e < num_experts; ++e) {
    const double expert_pairs = pairs[static_cast<size_t>(e)];
    // Rank r holds the experts [r E / n, (r + 1) E / n), which are equally many where n divides E.
    ExpertLoad& load = loads[static_cast<size_t>(e * expert_parallel / num_experts)];
    load.pairs += expert_pairs;
    load.unique_experts += expert_pairs > 0 ? 1 : 0;
  }
  return loads;
}

}  // namespace

std::vector<ExpertLoad> LoadPerRank(const Model& model, const std::vector<int32_t>& expert_ids,
                                    int64_t expert_parallel) {
  return SpreadOverRanks(CountPairs(model, expert_ids), expert_parallel);
}

ExpertLoad MeanLoad(const std::vector<ExpertLoad>& of_layers) {
  ExpertLoad mean;
  for (const ExpertLoad& load : of_layers) {
    mean.pairs += load.pairs / static_cast<double>(of_layers.size());
    mean.unique_experts += load.unique_experts / static_cast<double>(of_layers.size());
  }
  return mean;
}

int64_t MostLoadedRank(const std::vector<ExpertLoad>& loads) {
  const auto most =
      std::max_element(loads.begin(), loads.end(), [](const ExpertLoad& a, const ExpertLoad& b) {
        return std::pair(a.unique_experts, a.pairs) < std::pair(b.unique_experts, b.pairs);
      });
  return most - loads.begin();
}

void ExchangeGroups(int64_t num_experts, int64_t num_groups, int64_t group, int64_t other,
                    std::vector<float>& scores) {
  if (group == other) {
    return;
  }
  const int64_t size = num_experts / num_groups;
  for (auto row = scores.begin(); row != scores.end(); row += num_experts) {
    std::swap_ranges(row + group * size, row + (group + 1) * size, row + other * size);
  }
}

double ExpectedUniqueExperts(int64_t num_experts, int64_t top_k, int64_t num_tokens) {
  const auto experts = static_cast<double>(num_experts);
  const double missed = 1 - static_cast<double>(top_k) / experts;
  return experts * (1 - std::pow(missed, static_cast<double>(num_tokens)));
}

absl::StatusOr<SampledPairs> SamplePairs(const Model& model, const Routing& routing,
                                         int64_t num_tokens, int64_t opportunistic_keep,
                                         int num_draws) {
  if (num_draws < 1) {
    return absl::InvalidArgumentError(absl::StrCat("num_draws=", num_draws, ": at least 1"));
  }
  std::vector<int> moe_layers;
  for (size_t layer = 0; layer < model.layer_kinds.size(); ++layer) {
    if (model.layer_kinds[layer] == LayerKind::kMoe) {
      moe_layers.push_back(static_cast<int>(layer));
    }
  }
  if (moe_layers.empty()) {
    return absl::InvalidArgumentError("the model has no MoE layer: no expert is loaded");
  }
  SampledPairs sampled;
  for (int draw = 0; draw < num_draws; ++draw) {
    // Layers differ in their permutation: draws go through them in turn.
    const int layer = moe_layers[static_cast<size_t>(draw) % moe_layers.size()];
    LASTFLOP_ASSIGN_OR_RETURN(const std::vector<float> scores,
                              MakeRouterScores(model, routing, num_tokens, layer, draw));
    sampled.of_experts.push_back(
        CountPairs(model, ChooseExperts(model, scores, num_tokens, opportunistic_keep)));
  }
  if (routing.distribution == Distribution::kUniform && model.router.num_groups <= 1 &&
      (opportunistic_keep <= 0 || opportunistic_keep >= model.top_k)) {
    sampled.unique_experts = ExpectedUniqueExperts(model.num_experts, model.top_k, num_tokens);
  }
  return sampled;
}

absl::StatusOr<ExpectedLoad> LoadOfPairs(const SampledPairs& sampled, int64_t expert_parallel) {
  const auto num_experts = static_cast<int64_t>(sampled.of_experts.front().size());
  if (expert_parallel < 1 || expert_parallel > num_experts) {
    return absl::InvalidArgumentError(absl::StrCat("expert_parallel=", expert_parallel, " of ",
                                                   num_experts, " experts: it is at least 1"));
  }
  const auto draws = static_cast<double>(sampled.of_experts.size());
  ExpectedLoad expected;
  double all_pairs = 0;
  for (const std::vector<double>& pairs : sampled.of_experts) {
    ExpertLoad most;
    for (const ExpertLoad& load : SpreadOverRanks(pairs, expert_parallel)) {
      most.pairs = std::max(most.pairs, load.pairs);
      most.unique_experts = std::max(most.unique_experts, load.unique_experts);
      all_pairs += load.pairs / draws;
      expected.total_unique += load.unique_experts / draws;
    }
    expected.most_loaded_rank.pairs += most.pairs / draws;
    expected.most_loaded_rank.unique_experts += most.unique_experts / draws;
  }
  expected.total_unique = sampled.unique_experts.value_or(expected.total_unique);
  const auto ranks = static_cast<double>(expert_parallel);
  expected.mean_rank = {.pairs = all_pairs / ranks,
                        .unique_experts = expected.total_unique / ranks};
  if (expert_parallel == 1) {
    expected.most_loaded_rank = expected.mean_rank;
  }
  expected.imbalance =
      all_pairs > 0 ? expected.most_loaded_rank.pairs / expected.mean_rank.pairs : 1;
  return expected;
}

absl::StatusOr<ExpectedLoad> EstimateLoad(const Model& model, const Routing& routing,
                                          int64_t num_tokens, int64_t expert_parallel,
                                          int64_t opportunistic_keep, int num_draws) {
  LASTFLOP_ASSIGN_OR_RETURN(const SampledPairs sampled,
                            SamplePairs(model, routing, num_tokens, opportunistic_keep, num_draws));
  return LoadOfPairs(sampled, expert_parallel);
}

}  // namespace lastflop
