#include <cmath>

#include "kernels/sample/sample.h"

namespace lastflop {

void BestCandidatesReference(const SampleShape& shape, std::span<const float> logits,
                             std::span<Candidate> best) {
  for (int64_t t = 0; t < shape.num_tokens; ++t) {
    const float* const row = logits.data() + t * shape.vocab_rows;
    int64_t winner = 0;
    for (int64_t v = 1; v < shape.vocab_rows; ++v) {
      if (row[v] > row[winner] || (std::isnan(row[winner]) && !std::isnan(row[v]))) {
        winner = v;
      }
    }
    best[static_cast<size_t>(t)] = {.value = row[winner],
                                    .token_id = static_cast<int32_t>(shape.vocab_begin + winner)};
  }
}

}  // namespace lastflop
