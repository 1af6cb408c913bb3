#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/router/router.h"

namespace lastflop {
namespace {

// Indices of `values` from best to worst; equal values by index. -infinity takes no part.
std::vector<int32_t> Sorted(const std::vector<double>& values) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  while (!order.empty() && values[static_cast<size_t>(order.back())] == -INFINITY) {
    order.pop_back();
  }
  return order;
}

// What a chosen expert weighs before renormalisation.
std::vector<double> Plain(const RouterShape& shape, const float* scores) {
  std::vector<double> plain(scores, scores + shape.num_experts);
  const double max = *std::max_element(plain.begin(), plain.end());
  double sum = 0;
  for (double& value : plain) {
    value = shape.router.scoring == RouterScoring::kSigmoid ? 1 / (1 + std::exp(-value))
                                                            : std::exp(value - max);
    sum += value;
  }
  if (shape.router.scoring == RouterScoring::kSoftmax) {
    for (double& value : plain) {
      value /= sum;
    }
  }
  return plain;
}

void KeepBestGroups(const RouterShape& shape, std::vector<double>& values) {
  const int64_t size = shape.num_experts / shape.router.num_groups;
  std::vector<double> worth;
  for (int64_t g = 0; g < shape.router.num_groups; ++g) {
    std::vector<double> group(values.begin() + g * size, values.begin() + (g + 1) * size);
    std::sort(group.begin(), group.end(), std::greater<>());
    const bool sums_two = shape.router.scoring == RouterScoring::kSigmoid && size > 1;
    worth.push_back(group[0] + (sums_two ? group[1] : 0));
  }
  const std::vector<int32_t> best = Sorted(worth);
  for (size_t i = static_cast<size_t>(shape.router.top_k_groups); i < best.size(); ++i) {
    std::fill_n(values.begin() + best[i] * size, size, -INFINITY);
  }
}

// The values by which a token chooses; -infinity where it may not.
std::vector<double> Values(const RouterShape& shape, const float* scores,
                           std::span<const float> bias) {
  std::vector<double> values(scores, scores + shape.num_experts);
  if (shape.router.has_bias || shape.router.scoring == RouterScoring::kSigmoid) {
    values = Plain(shape, scores);
  }
  for (size_t e = 0; shape.router.has_bias && e < values.size(); ++e) {
    values[e] += static_cast<double>(bias[e]);
  }
  KeepBestGroups(shape, values);
  return values;
}

void WriteToken(const RouterShape& shape, const float* scores, const std::vector<int32_t>& chosen,
                int32_t* expert_ids, float* weights) {
  const std::vector<double> plain = Plain(shape, scores);
  double sum = 0;
  for (const int32_t e : chosen) {
    sum += plain[static_cast<size_t>(e)];
  }
  const bool divides = shape.router.renormalize || shape.router.softmax_after_top_k;
  for (size_t k = 0; k < static_cast<size_t>(shape.top_k); ++k) {
    expert_ids[k] = k < chosen.size() ? chosen[k] : -1;
    weights[k] = k < chosen.size()
                     ? static_cast<float>(plain[static_cast<size_t>(chosen[k])] /
                                          (divides ? sum : 1) * shape.router.scaling_factor)
                     : 0.0f;
  }
}

}  // namespace

void RouterReference(const RouterShape& shape, std::span<const float> scores,
                     std::span<const float> bias, std::span<int32_t> expert_ids,
                     std::span<float> weights) {
  const bool is_limited = shape.opportunistic_keep > 0 && shape.opportunistic_keep < shape.top_k;
  std::vector<uint8_t> in_batch(static_cast<size_t>(shape.num_experts), is_limited ? 0 : 1);
  for (int64_t t = 0; is_limited && t < shape.num_tokens; ++t) {
    std::vector<int32_t> best = Sorted(Values(shape, scores.data() + t * shape.num_experts, bias));
    best.resize(std::min(best.size(), static_cast<size_t>(shape.opportunistic_keep)));
    for (const int32_t e : best) {
      in_batch[static_cast<size_t>(e)] = 1;
    }
  }
  for (int64_t t = 0; t < shape.num_tokens; ++t) {
    const float* const row = scores.data() + t * shape.num_experts;
    std::vector<double> values = Values(shape, row, bias);
    for (size_t e = 0; e < values.size(); ++e) {
      values[e] = in_batch[e] != 0 ? values[e] : -INFINITY;
    }
    std::vector<int32_t> chosen = Sorted(values);
    chosen.resize(std::min(chosen.size(), static_cast<size_t>(shape.top_k)));
    WriteToken(shape, row, chosen, expert_ids.data() + t * shape.top_k,
               weights.data() + t * shape.top_k);
  }
}

}  // namespace lastflop
