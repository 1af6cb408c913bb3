#pragma once

#include <cuda_bf16.h>
#include <cuda_fp8.h>

#include <cstdint>

// What the kernels over rows share: vectors of bf16, and reductions over a warp.
namespace lastflop {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

// kSize neighbouring bf16 values as fp32. kSize is 8 (one 16-byte access, aligned) or 1.
template <int kSize>
struct Bf16Run {
  float values[kSize];

  __device__ static Bf16Run Load(const __nv_bfloat16* from) {
    Bf16Run run;
    if constexpr (kSize == 8) {
      const uint4 words = *reinterpret_cast<const uint4*>(from);
      const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        run.values[2 * i] = __uint_as_float(pairs[i] << 16);
        run.values[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF0000u);
      }
    } else {
      run.values[0] = __bfloat162float(*from);
    }
    return run;
  }

  __device__ void Store(__nv_bfloat16* to) const {
    if constexpr (kSize == 8) {
      uint32_t pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
        pairs[i] = reinterpret_cast<const uint32_t&>(pair);
      }
      *reinterpret_cast<uint4*>(to) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
    } else {
      *to = __float2bfloat16_rn(values[0]);
    }
  }

  // Rounded to nearest, beyond 448 to 448.
  __device__ void Store(__nv_fp8_storage_t* to) const {
    if constexpr (kSize == 8) {
      uint32_t words[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(values[4 * i], values[4 * i + 1]),
                                                      __NV_SATFINITE, __NV_E4M3);
        const uint32_t high = __nv_cvt_float2_to_fp8x2(
            make_float2(values[4 * i + 2], values[4 * i + 3]), __NV_SATFINITE, __NV_E4M3);
        words[i] = low | high << 16;
      }
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    } else {
      *to = __nv_cvt_float_to_fp8(values[0], __NV_SATFINITE, __NV_E4M3);
    }
  }
};

__device__ inline float RoundedToBf16(float value) {
  return __bfloat162float(__float2bfloat16_rn(value));
}

__device__ inline float WarpSum(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

__device__ inline float WarpMax(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, offset));
  }
  return value;
}

// Order of floats as unsigned integers: a larger value has a larger key, -0 equals 0. 0 stands for
// NaN and for -infinity: what no choice takes.
__device__ inline uint32_t OrderedKey(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  const uint32_t key = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return value > -INFINITY ? key : 0;
}

}  // namespace lastflop
