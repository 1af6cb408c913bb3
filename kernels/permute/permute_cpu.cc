#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/permute/permute.h"

namespace lastflop {

PairBuffer::PairBuffer(const PermuteShape& shape)
    : offsets(static_cast<size_t>(shape.num_local_experts + 1)),
      token(static_cast<size_t>(shape.num_tokens * shape.top_k)),
      weight(static_cast<size_t>(shape.num_tokens * shape.top_k)),
      pair_of(static_cast<size_t>(shape.num_tokens * shape.top_k)) {}

PairList PairBuffer::list() {
  return {.offsets = offsets, .token = token, .weight = weight, .pair_of = pair_of};
}

absl::Status ValidatePermute(const PermuteShape& shape) {
  if (shape.num_tokens < 0 || shape.top_k < 1 || shape.num_local_experts < 1 ||
      shape.first_expert < 0 || shape.first_expert + shape.num_local_experts > shape.num_experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("permute: num_tokens=", shape.num_tokens, " top_k=", shape.top_k, " experts [",
                     shape.first_expert, ", ", shape.first_expert + shape.num_local_experts,
                     ") of ", shape.num_experts));
  }
  return absl::OkStatus();
}

void Permute(const PermuteShape& shape, std::span<const int32_t> expert_ids,
             std::span<const float> weights, const PairList& out) {
  const auto num_slots = static_cast<size_t>(shape.num_tokens * shape.top_k);
  const auto num_experts = static_cast<uint32_t>(shape.num_local_experts);
  const auto first = static_cast<uint32_t>(shape.first_expert);
  // A slot of another rank, and one that is not used, is out of range as an unsigned number.
  const auto local = [&](size_t slot) { return static_cast<uint32_t>(expert_ids[slot]) - first; };
  std::fill(out.offsets.begin(), out.offsets.end(), 0);
  for (size_t slot = 0; slot < num_slots; ++slot) {
    if (const uint32_t expert = local(slot); expert < num_experts) {
      ++out.offsets[expert + 1];
    }
  }
  for (uint32_t expert = 0; expert < num_experts; ++expert) {
    out.offsets[expert + 1] += out.offsets[expert];
  }
  // offsets[e] is used as the next free place of e, and so ends as the begin of e + 1.
  const auto top_k = static_cast<size_t>(shape.top_k);
  for (size_t slot = 0; slot < num_slots; ++slot) {
    const uint32_t expert = local(slot);
    if (expert >= num_experts) {
      out.pair_of[slot] = -1;
      continue;
    }
    const int32_t pair = out.offsets[expert]++;
    out.token[static_cast<size_t>(pair)] = static_cast<int32_t>(slot / top_k);
    out.weight[static_cast<size_t>(pair)] = weights[slot];
    out.pair_of[slot] = pair;
  }
  for (uint32_t expert = num_experts; expert > 0; --expert) {
    out.offsets[expert] = out.offsets[expert - 1];
  }
  out.offsets[0] = 0;
}

}  // namespace lastflop
