#pragma once

#include <bit>
#include <cstdint>

namespace lastflop {

// A bfloat16 in memory: the upper half of an fp32. Arithmetic happens in fp32.
struct Bf16 {
  uint16_t bits = 0;
  bool operator==(const Bf16&) const = default;
};
static_assert(sizeof(Bf16) == 2);

// Exact.
inline float ToFloat(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

// Rounds to nearest, ties to even. NaN stays NaN; what is beyond the largest finite value becomes
// infinity.
inline Bf16 ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  }
  return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

// `value` rounded to what a bf16 holds.
inline float RoundToBf16(float value) { return ToFloat(ToBf16(value)); }

}  // namespace lastflop
