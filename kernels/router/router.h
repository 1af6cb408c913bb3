#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/cpu/thread_pool.h"
#include "step/shapes.h"

// Router: from scores to each token's experts and their weights.
//
//   value[t, e]   softmax: scores[t, e], or softmax(scores[t])[e] + bias[e] when has_bias
//                 sigmoid: sigmoid(scores[t, e]) (+ bias[e])
//   groups        of num_groups contiguous groups the best top_k_groups take part; a group's worth
//                 is the sum of its two best values under sigmoid, its best under softmax
//   expert_ids    the top_k experts by value among those that take part, best first
//   weights       softmax(scores[t])[e] or sigmoid(scores[t, e]), without bias; with
//                 softmax_after_top_k the softmax is over the chosen alone; with renormalize
//                 divided by their sum; times scaling_factor
//
// Equal values choose the lower index. opportunistic_keep > 0 (and < top_k) lets every token choose
// from the experts only that any token of the batch has among its best so many; a token that finds
// fewer than top_k has id -1 and weight 0 in the rest of its slots.
//
// `scores` is [num_tokens, num_experts] fp32, `bias` [num_experts] fp32 or empty, `expert_ids` and
// `weights` are [num_tokens, top_k].
namespace lastflop {

// InvalidArgument: sizes out of range, experts that groups do not divide, groups too few for top_k.
absl::Status ValidateRouter(const RouterShape& shape);

// Plain: values by the formulas, selection by sorting.
void RouterReference(const RouterShape& shape, std::span<const float> scores,
                     std::span<const float> bias, std::span<int32_t> expert_ids,
                     std::span<float> weights);

void Router(const RouterShape& shape, std::span<const float> scores, std::span<const float> bias,
            std::span<int32_t> expert_ids, std::span<float> weights, ThreadPool& pool);

}  // namespace lastflop
