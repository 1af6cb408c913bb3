#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define LASTFLOP_HOST_DEVICE __host__ __device__
#else
#define LASTFLOP_HOST_DEVICE
#endif

// Counter-based random numbers: a value depends on (seed, stream, index) alone, so every layout,
// slice, rank, thread count and backend makes the same weights and inputs.
namespace lastflop {

// Finalizer of splitmix64 (Steele, Lea, Flood 2014) over a mixed counter.
LASTFLOP_HOST_DEVICE constexpr uint64_t CounterRandom(uint64_t seed, uint64_t stream,
                                                      uint64_t index) {
  uint64_t z = seed + 0x9E3779B97F4A7C15ull * (stream + 1) + 0xD1B54A32D192ED03ull * (index + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

// Uniform in [0, 1) from 24 bits: exact in fp32.
LASTFLOP_HOST_DEVICE constexpr float CounterUniform(uint64_t seed, uint64_t stream,
                                                    uint64_t index) {
  return static_cast<float>(CounterRandom(seed, stream, index) >> 40) * 0x1.0p-24f;
}

// The true value of weight `index` of a tensor whose rows have `in_features` weights: uniform with
// variance 1 / in_features, four 16-bit values a draw. Quantized formats quantize these values, so
// plans that store or slice the same weights differently are comparable.
// `amplitude` is sqrt(3 / in_features).
LASTFLOP_HOST_DEVICE constexpr float TrueWeight(uint64_t seed, uint64_t stream, uint64_t index,
                                                float amplitude) {
  const uint64_t bits = CounterRandom(seed, stream, index / 4) >> (16 * (index % 4));
  const auto centered = static_cast<float>(static_cast<int32_t>(bits & 0xFFFF) - 32768);
  return centered * (amplitude * 0x1.0p-15f);
}

}  // namespace lastflop
