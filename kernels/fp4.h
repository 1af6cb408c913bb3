#pragma once

#include <cstdint>
#include <cstring>

#include "common/random.h"

// fp4 weights: e2m1 values in groups that share a scale. Host and device compute the same.
//
//   nvfp4: 16 weights share an e4m3 scale, a tensor one in fp32: code * scale * tensor_scale.
//   mxfp4: 32 weights share a power of two: code * 2^(scale - 127).
namespace lastflop {

// Codes are sign (8) and magnitude: 0, 0.5, 1, 1.5, 2, 3, 4, 6.
LASTFLOP_HOST_DEVICE inline float Fp4Value(uint32_t code) {
  const uint32_t exponent = code >> 1 & 3u;
  const float mantissa = static_cast<float>(code & 1u) * 0.5f;
  const float magnitude =
      exponent == 0 ? mantissa : (1.0f + mantissa) * static_cast<float>(1u << (exponent - 1));
  return (code & 8u) != 0 ? -magnitude : magnitude;
}

// The nearest code, ties to even; beyond 6 it is 6.
LASTFLOP_HOST_DEVICE inline uint32_t Fp4Quantize(float value) {
  const float v = value < 0 ? -value : value;
  const uint32_t magnitude = v <= 0.25f   ? 0
                             : v < 0.75f  ? 1
                             : v <= 1.25f ? 2
                             : v < 1.75f  ? 3
                             : v <= 2.5f  ? 4
                             : v < 3.5f   ? 5
                             : v <= 5.0f  ? 6
                                          : 7;
  return magnitude | (value < 0 ? 8u : 0u);
}

LASTFLOP_HOST_DEVICE inline uint32_t FloatBits(float value) {
  uint32_t bits = 0;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}
LASTFLOP_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
  float value = 0;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

// The scale of a tensor whose weights are up to `absmax`: their groups' scales reach 448.
LASTFLOP_HOST_DEVICE inline float Nvfp4TensorScale(float absmax) {
  return absmax / (6.0f * 448.0f);
}

// e4m3 of absmax / 6 / tensor_scale, between 2^-6 (the least that is normal) and 448.
LASTFLOP_HOST_DEVICE inline uint32_t Nvfp4GroupScale(float absmax, float tensor_scale) {
  const float ratio = tensor_scale > 0 ? absmax / (6.0f * tensor_scale) : 0.0f;
  const float scale = ratio < 0x1p-6f ? 0x1p-6f : ratio > 448.0f ? 448.0f : ratio;
  const uint32_t bits = FloatBits(scale);
  const uint32_t field = ((bits + 0x7FFFFu + (bits >> 20 & 1u)) >> 20) - (120u << 3);
  return field > 0x7E ? 0x7E : field;
}
LASTFLOP_HOST_DEVICE inline float Nvfp4ScaleValue(uint32_t scale) {
  return FloatOfBits((scale << 20) + (120u << 23));
}

// Biased exponent of the power of two that brings `absmax` between 4 and 8; 2^-100 to 2^17.
LASTFLOP_HOST_DEVICE inline uint32_t Mxfp4GroupScale(float absmax) {
  const auto exponent = static_cast<int32_t>(FloatBits(absmax) >> 23 & 0xFFu) - 2;
  return static_cast<uint32_t>(exponent < 27 ? 27 : exponent > 144 ? 144 : exponent);
}
LASTFLOP_HOST_DEVICE inline float Mxfp4ScaleValue(uint32_t scale) {
  return FloatOfBits(scale << 23);
}

// The code of a weight; 0 where the scale is.
LASTFLOP_HOST_DEVICE inline uint32_t Fp4CodeOf(float weight, float scale) {
  return scale > 0 ? Fp4Quantize(weight / scale) : 0;
}

}  // namespace lastflop
