#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "step/shapes.h"

// Permute: groups the (token, k) pairs of a routing by the rank's experts.
//
// From expert_ids[t, k] (model-wide ids; -1 for a slot that is not used) and weights[t, k], pairs
// of the rank's experts in order of expert, then token, then k:
//
//   offsets[e] .. offsets[e + 1]   the pairs of local expert e; offsets[num_local_experts] is their
//                                  number, known on the device only
//   token[p], weight[p]            the token and router weight of pair p
//   pair_of[t * top_k + k]         the pair of a slot, -1 when its expert is another rank's
namespace lastflop {

// Where a permutation is kept. Entries of token and weight past the number of pairs are undefined.
struct PairList {
  std::span<int32_t> offsets;  // [num_local_experts + 1]
  std::span<int32_t> token;    // [num_tokens * top_k]
  std::span<float> weight;     // [num_tokens * top_k]
  std::span<int32_t> pair_of;  // [num_tokens * top_k]

  int32_t num_pairs() const { return offsets.back(); }
  int64_t num_experts() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// Memory for a PairList of this shape.
struct PairBuffer {
  explicit PairBuffer(const PermuteShape& shape);
  PairList list();

  std::vector<int32_t> offsets;
  std::vector<int32_t> token;
  std::vector<float> weight;
  std::vector<int32_t> pair_of;
};

// InvalidArgument for sizes out of range.
absl::Status ValidatePermute(const PermuteShape& shape);

// One pass per expert over all slots: the truth that Permute is compared to.
void PermuteReference(const PermuteShape& shape, std::span<const int32_t> expert_ids,
                      std::span<const float> weights, const PairList& out);

// Counting sort on the calling thread: 512 pairs take about a microsecond.
void Permute(const PermuteShape& shape, std::span<const int32_t> expert_ids,
             std::span<const float> weights, const PairList& out);

}  // namespace lastflop
