#include "kernels/permute/permute.h"

namespace lastflop {

void PermuteReference(const PermuteShape& shape, std::span<const int32_t> expert_ids,
                      std::span<const float> weights, const PairList& out) {
  int32_t pair = 0;
  for (int64_t slot = 0; slot < shape.num_tokens * shape.top_k; ++slot) {
    out.pair_of[static_cast<size_t>(slot)] = -1;
  }
  for (int64_t expert = 0; expert < shape.num_local_experts; ++expert) {
    out.offsets[static_cast<size_t>(expert)] = pair;
    for (int64_t t = 0; t < shape.num_tokens; ++t) {
      for (int64_t k = 0; k < shape.top_k; ++k) {
        const auto slot = static_cast<size_t>(t * shape.top_k + k);
        if (expert_ids[slot] == shape.first_expert + expert) {
          out.token[static_cast<size_t>(pair)] = static_cast<int32_t>(t);
          out.weight[static_cast<size_t>(pair)] = weights[slot];
          out.pair_of[slot] = pair;
          ++pair;
        }
      }
    }
  }
  out.offsets[static_cast<size_t>(shape.num_local_experts)] = pair;
}

}  // namespace lastflop
