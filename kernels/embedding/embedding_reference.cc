#include "kernels/embedding/embedding.h"

namespace lastflop {

void EmbeddingReference(const EmbeddingShape& shape, std::span<const int32_t> token_ids,
                        std::span<const Bf16> table, std::span<float> out) {
  const int64_t hidden = shape.hidden_size;
  for (int64_t t = 0; t < shape.num_tokens; ++t) {
    const int64_t row = token_ids[static_cast<size_t>(t)] - shape.vocab_begin;
    for (int64_t h = 0; h < hidden; ++h) {
      const bool is_here = row >= 0 && row < shape.vocab_rows;
      out[static_cast<size_t>(t * hidden + h)] =
          is_here ? ToFloat(table[static_cast<size_t>(row * hidden + h)]) : 0.0f;
    }
  }
}

}  // namespace lastflop
