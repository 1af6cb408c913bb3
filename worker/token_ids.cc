#include "worker/token_ids.h"

#include <cmath>
#include <cstddef>

#include "common/random.h"

namespace lastflop {

std::vector<int32_t> DrawTokenIds(uint64_t seed, int64_t draw, int64_t first, int64_t count,
                                  int64_t vocab_size) {
  constexpr uint64_t kTokenStream = 0x746F6B656E73ULL;
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t random = CounterRandom(seed, kTokenStream + static_cast<uint64_t>(draw),
                                          static_cast<uint64_t>(first + i));
    ids[static_cast<size_t>(i)] = static_cast<int32_t>(random % static_cast<uint64_t>(vocab_size));
  }
  return ids;
}

void DrawActivations(uint64_t seed, int64_t draw, std::span<Bf16> out) {
  constexpr uint64_t kActivationStream = 0x6163746976ULL;
  const float amplitude = std::sqrt(3.0F);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] =
        ToBf16(TrueWeight(seed, kActivationStream + static_cast<uint64_t>(draw), i, amplitude));
  }
}

}  // namespace lastflop
