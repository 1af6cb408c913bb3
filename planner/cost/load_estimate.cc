#include "planner/cost/load_estimate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/cost/units.h"

namespace lastflop {
namespace {

constexpr int kNumLoadSpreads = 48;  // Ways to spread experts over ranks; a mean over them.
constexpr uint64_t kSpreadSeed = 20240229;

// Mean popularity by place over the layers of a trace: which expert is popular differs by layer,
// how popular the most popular one is matters.
std::vector<double> TracePopularity(const Routing& routing, size_t num_experts) {
  std::vector<double> mean(num_experts, 0);
  for (std::vector<double> layer : routing.trace_popularity) {
    layer.resize(num_experts, 0);
    std::sort(layer.begin(), layer.end(), std::greater<>());
    const double sum = std::max(std::accumulate(layer.begin(), layer.end(), 0.0), 1e-300);
    for (size_t e = 0; e < num_experts; ++e) {
      mean[e] += layer[e] / sum;
    }
  }
  return mean;
}

// How likely `num_tokens` touch each expert at least once, and how many of their pairs it takes.
struct ExpertMoments {
  std::vector<double> pairs;
  std::vector<double> touched;
  std::vector<double> pair_variance;
};

ExpertMoments MomentsOf(const std::vector<double>& inclusion, const Routing& routing,
                        double num_tokens) {
  ExpertMoments moments;
  const bool is_level = routing.distribution == Distribution::kBalanced;
  for (const double chance : inclusion) {
    moments.pairs.push_back(num_tokens * chance);
    moments.touched.push_back(is_level ? std::min(1.0, num_tokens * chance)
                                       : -std::expm1(num_tokens * std::log1p(-chance)));
    moments.pair_variance.push_back(is_level ? 0 : num_tokens * chance * (1 - chance));
  }
  return moments;
}

// The largest load over ranks, mean over ways to spread the experts.
ExpertLoad MostLoaded(const ExpertMoments& moments, int64_t groups, int64_t redundant) {
  std::mt19937_64 random(kSpreadSeed);
  std::normal_distribution<double> noise;
  const size_t num_experts = moments.pairs.size();
  std::vector<size_t> order(num_experts);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<double> pairs(num_experts);
  for (size_t e = 0; e < num_experts; ++e) {
    // A spare copy halves what the expert's own rank computes.
    pairs[e] = moments.pairs[e] / (static_cast<int64_t>(e) < redundant ? 2 : 1);
  }
  ExpertLoad sum;
  for (int spread = 0; spread < kNumLoadSpreads; ++spread) {
    std::shuffle(order.begin(), order.end(), random);
    ExpertLoad most;
    for (int64_t group = 0; group < groups; ++group) {
      const auto begin = static_cast<size_t>(group) * num_experts / static_cast<size_t>(groups);
      const auto end = static_cast<size_t>(group + 1) * num_experts / static_cast<size_t>(groups);
      double rank_pairs = 0;
      double variance = 0;
      double touched = 0;
      double touched_variance = 0;
      for (size_t i = begin; i < end; ++i) {
        const size_t e = order[i];
        rank_pairs += pairs[e];
        variance += moments.pair_variance[e];
        touched += moments.touched[e];
        touched_variance += moments.touched[e] * (1 - moments.touched[e]);
      }
      const double draw = noise(random);  // Many pairs and many experts go together.
      most.pairs = std::max(most.pairs, rank_pairs + draw * std::sqrt(variance));
      most.unique_experts = std::max(
          most.unique_experts,
          std::min(touched + draw * std::sqrt(touched_variance), static_cast<double>(end - begin)));
    }
    sum.pairs += most.pairs / kNumLoadSpreads;
    sum.unique_experts += most.unique_experts / kNumLoadSpreads;
  }
  return sum;
}

}  // namespace

std::vector<double> InclusionByPopularity(const std::vector<double>& popularity, int64_t top_k) {
  std::vector<double> chance(popularity.size());
  const auto target = std::min(
      ToDouble(top_k), static_cast<double>(std::count_if(popularity.begin(), popularity.end(),
                                                         [](double value) { return value > 0; })));
  const double sum = std::accumulate(popularity.begin(), popularity.end(), 0.0);
  double low = 0;
  double high = 1;
  const auto fill = [&](double lambda) {
    double total = 0;
    for (size_t e = 0; e < popularity.size(); ++e) {
      chance[e] = -std::expm1(-lambda * popularity[e] / sum);
      total += chance[e];
    }
    return total;
  };
  while (fill(high) < target * (1 - 1e-9) && high < 1e12) {
    high *= 2;
  }
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (fill(middle) < target ? low : high) = middle;
  }
  return chance;
}

const std::vector<double>& LoadEstimator::Inclusion(const Routing& routing, int64_t top_k) {
  const bool is_trace = routing.distribution == Distribution::kTrace;
  const RoutingKey key{static_cast<int>(routing.distribution),
                       routing.distribution == Distribution::kZipf ? routing.exponent : 0,
                       is_trace ? &routing : nullptr, top_k};
  const auto found = inclusion_.find(key);
  if (found != inclusion_.end()) {
    return found->second;
  }
  const auto num_experts = static_cast<size_t>(model_.num_experts);
  std::vector<double> chance(num_experts, ToDouble(top_k) / ToDouble(model_.num_experts));
  if (routing.distribution == Distribution::kZipf) {
    std::vector<double> popularity(num_experts);
    for (size_t e = 0; e < num_experts; ++e) {
      popularity[e] = std::pow(static_cast<double>(e + 1), -routing.exponent);
    }
    chance = InclusionByPopularity(popularity, top_k);
  } else if (is_trace) {
    chance = InclusionByPopularity(TracePopularity(routing, num_experts), top_k);
  } else if (routing.distribution == Distribution::kAllToOne) {
    for (size_t e = 0; e < num_experts; ++e) {
      chance[e] = static_cast<int64_t>(e) < top_k ? 1 : 0;
    }
  }
  return inclusion_.emplace(key, std::move(chance)).first->second;
}

absl::StatusOr<LoadEstimate> LoadEstimator::Estimate(const Routing& routing, int64_t num_tokens,
                                                     int64_t expert_groups,
                                                     int64_t opportunistic_keep,
                                                     int64_t redundant_experts) {
  if (model_.num_experts < 1 || expert_groups < 1 || expert_groups > model_.num_experts) {
    return absl::InvalidArgumentError(absl::StrCat(
        "expert_groups=", expert_groups, " of ", model_.num_experts, " experts: at least 1 each"));
  }
  if (routing.distribution == Distribution::kTrace && routing.trace_popularity.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace ", routing.trace_file, " has no popularity"));
  }
  const bool restricts = opportunistic_keep > 0 && opportunistic_keep < model_.top_k;
  const RoutingKey key{static_cast<int>(routing.distribution), routing.exponent,
                       routing.distribution == Distribution::kTrace ? &routing : nullptr,
                       restricts ? opportunistic_keep : model_.top_k};
  const auto [place, is_new] = loads_.try_emplace(
      std::make_tuple(key, num_tokens, expert_groups, redundant_experts, model_.top_k));
  LoadEstimate& estimate = place->second;
  if (!is_new) {
    return estimate;
  }
  const double tokens = ToDouble(num_tokens);
  // Tokens may use the experts that any of them has among its best `keep`: so many are touched.
  // Each still computes with up to top_k of those.
  const ExpertMoments moments =
      MomentsOf(Inclusion(routing, restricts ? opportunistic_keep : model_.top_k), routing, tokens);
  const double groups = ToDouble(expert_groups);
  const double touched = std::accumulate(moments.touched.begin(), moments.touched.end(), 0.0);
  const double pairs = tokens * std::min(ToDouble(model_.top_k), touched);
  estimate.mean_rank = {.pairs = pairs / groups, .unique_experts = touched / groups};
  if (expert_groups == 1 || num_tokens == 0) {
    estimate.most_loaded_rank = estimate.mean_rank;
    return estimate;
  }
  estimate.most_loaded_rank = MostLoaded(moments, expert_groups, redundant_experts);
  const double counted = std::accumulate(moments.pairs.begin(), moments.pairs.end(), 0.0);
  estimate.most_loaded_rank.pairs *= pairs / std::max(counted, 1e-300);
  return estimate;
}

}  // namespace lastflop
