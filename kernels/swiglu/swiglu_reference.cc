#include <cmath>

#include "kernels/swiglu/swiglu.h"

namespace lastflop {

int64_t SwigluRows(const ActivationShape& shape, const PairList* pairs) {
  return shape.rows_are_pairs ? pairs->num_pairs() : shape.rows;
}

void SwigluReference(const ActivationShape& shape, const PairList* pairs, std::span<const Bf16> in,
                     std::span<float> out) {
  const auto size = static_cast<size_t>(shape.intermediate_size);
  const auto rows = static_cast<size_t>(SwigluRows(shape, pairs));
  for (size_t r = 0; r < rows; ++r) {
    for (size_t f = 0; f < size; ++f) {
      const float gate = ToFloat(in[r * 2 * size + f]);
      const float up = ToFloat(in[r * 2 * size + size + f]);
      out[r * size + f] = gate / (1.0f + std::exp(-gate)) * up;
    }
  }
}

}  // namespace lastflop
