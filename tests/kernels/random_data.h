#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/cpu/bf16.h"

// Input of kernel tests.
namespace lastflop {

// Standard normal values rounded to bf16.
inline std::vector<Bf16> RandomBf16(size_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values(count);
  for (Bf16& value : values) {
    value = ToBf16(normal(generator));
  }
  return values;
}

// Integers in [low, high].
inline std::vector<Bf16> RandomIntegers(size_t count, int low, int high, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_int_distribution<int> uniform(low, high);
  std::vector<Bf16> values(count);
  for (Bf16& value : values) {
    value = ToBf16(static_cast<float>(uniform(generator)));
  }
  return values;
}

inline std::vector<float> ToFloats(const std::vector<Bf16>& values) {
  std::vector<float> out(values.size());
  std::transform(values.begin(), values.end(), out.begin(), ToFloat);
  return out;
}

// top_k different experts of num_experts a token.
inline std::vector<int32_t> RandomExperts(int64_t num_tokens, int64_t top_k, int64_t num_experts,
                                          uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int32_t> all(static_cast<size_t>(num_experts));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < num_tokens; ++t) {
    std::shuffle(all.begin(), all.end(), generator);
    ids.insert(ids.end(), all.begin(), all.begin() + top_k);
  }
  return ids;
}

}  // namespace lastflop
