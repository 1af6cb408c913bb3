#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace lastflop {

// An fp8 e4m3 value in memory: sign, 4 bits of exponent (bias 7), 3 of mantissa; no infinities,
// 0x7F and 0xFF are NaN, the largest finite value is 448.
struct Fp8 {
  uint8_t bits = 0;
  bool operator==(const Fp8&) const = default;
};
static_assert(sizeof(Fp8) == 1);

inline constexpr float kFp8Max = 448.0f;

// Exact.
inline float ToFloat(Fp8 value) {
  const uint32_t magnitude = value.bits & 0x7Fu;
  if (magnitude == 0x7F) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  // The fields, read as those of an fp32, stand for a value 2^120 times smaller; so do subnormals.
  const float scaled = std::bit_cast<float>(magnitude << 20) * 0x1p120f;
  return (value.bits & 0x80) != 0 ? -scaled : scaled;
}

// Rounds to nearest, ties to even; what is beyond 448 becomes 448. NaN stays NaN.
inline Fp8 ToFp8(float value) {
  const auto sign = static_cast<uint8_t>(std::bit_cast<uint32_t>(value) >> 24 & 0x80u);
  const float magnitude = std::abs(value);
  if (value != value) {
    return {static_cast<uint8_t>(sign | 0x7F)};
  }
  if (magnitude >= kFp8Max) {
    return {static_cast<uint8_t>(sign | 0x7E)};
  }
  if (magnitude < 0x1p-6f) {
    // Steps of 2^-9; a value that rounds to the eighth step is the first normal one, as it should.
    return {static_cast<uint8_t>(sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512.0f)))};
  }
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7FFFFu + ((bits >> 20) & 1u);
  const uint32_t fields = (rounded >> 20) - (120u << 3);
  return {static_cast<uint8_t>(sign | (fields > 0x7E ? 0x7E : fields))};
}

// Rounds a row to e4m3 with a scale for every 128 neighbours, max / 448: fp8 activations.
inline void RoundRowToFp8(std::span<float> row) {
  constexpr size_t kBlock = 128;
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const std::span<float> block = row.subspan(begin, std::min(kBlock, row.size() - begin));
    float max = 0;
    for (const float value : block) {
      max = std::max(max, std::abs(value));
    }
    const float scale = max / kFp8Max;
    for (float& value : block) {
      value = scale > 0 ? ToFloat(ToFp8(value / scale)) * scale : 0.0f;
    }
  }
}

}  // namespace lastflop
