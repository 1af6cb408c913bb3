#pragma once

#include <cstdint>

#include "kernels/grouped_gemm/grouped_gemm_shape.cuh"

// Products of a stage's weights and activations, format by format.
namespace lastflop {
namespace grouped_gemm {

template <typename T>
using Sums = float[T::kRowBlocks][T::kTokenTiles][4];

// Shared addresses of what a lane reads of a stage: of its first block of 64 features and, for
// tokens, of its first token tile.
struct StageAddresses {
  uint32_t weights;
  uint32_t scales;
  uint32_t tokens;
  uint32_t token_scales;  // fp8 tokens: of the first of the lane's two columns of sums.
};

// Of what a lane reads of its tokens for 64 features.
struct TokenAddresses {
  uint32_t first;   // Of the first 32 features.
  uint32_t second;  // Of the last 32.
  uint32_t scales;
};

// A lane's int4 weight words and scales of 64 features of the warp's row blocks.
template <typename T>
struct WeightWords {
  uint4 of[T::kRowBlocks];
  uint2 scales[T::kRowBlocks];  // Of the two groups of 32.

  __device__ void Load(uint32_t weights_at, uint32_t scales_at) {
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      of[r] = LoadShared16(weights_at + r * T::kRowBlockBytes);
      if constexpr (T::kFormat == WeightFormat::kInt4G32) {
        scales[r] = LoadShared8(scales_at + r * T::kRowBlockBytes);
      } else {
        scales[r].x = scales[r].y = LoadShared4(scales_at + r * T::kRowBlockBytes);
      }
    }
  }
};

// Adds a part of a sum, scaled by the fp32 scales of rows g and g + 8.
__device__ inline void AddScaled(float (&sum)[4], const float (&part)[4], uint2 scale) {
  const float low = __uint_as_float(scale.x);
  const float high = __uint_as_float(scale.y);
  sum[0] += low * part[0];
  sum[1] += low * part[1];
  sum[2] += high * part[2];
  sum[3] += high * part[3];
}

// A fragments of a group of 32 features of a row block of int4 weights.
struct GroupFragments {
  uint32_t first[4];
  uint32_t second[4];
  float low;  // Scales of rows g and g + 8.
  float high;

  // Values that are 136 too large, not scaled.
  __device__ void MakeWithOffset(uint32_t word0, uint32_t word1, uint32_t scales) {
    NibblesPlus128(word0, first);
    NibblesPlus128(word1, second);
    low = LowBf16(scales);
    high = HighBf16(scales);
  }
  // Values times scales, rounded to bf16.
  __device__ void MakeScaled(uint32_t word0, uint32_t word1, uint32_t scales) {
    NibblesToValues(word0, first);
    NibblesToValues(word1, second);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const __nv_bfloat162 scale = BroadcastHalf(scales, i % 2);
      first[i] = MultiplyPairs(first[i], scale);
      second[i] = MultiplyPairs(second[i], scale);
    }
  }
};

// bf16 -136 in all places of an A fragment, kept in registers.
struct MinusOffset {
  uint32_t a[4];
  __device__ MinusOffset() {
#pragma unroll
    for (uint32_t& pair : a) {
      asm volatile("mov.b32 %0, 0xC308C308;" : "=r"(pair));
    }
  }
};

// Adds the products of a group of 32 features of int4 weights; `x_at` is the address of the lane's
// activations of its first token. One token tile: the offset is taken off by a product that row
// blocks share, and sums are scaled in fp32.
template <typename T>
__device__ inline void MultiplyGroupOnce(const WeightWords<T>& words, int group, uint32_t x_at,
                                         const MinusOffset& minus, Sums<T>& sums) {
  const uint4 x = LoadShared16(x_at);
  float offsets[4];
  MmaFirst(offsets, minus.a, x.x, x.y);
  Mma(offsets, minus.a, x.z, x.w);
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    GroupFragments a;
    a.MakeWithOffset(group == 0 ? words.of[r].x : words.of[r].z,
                     group == 0 ? words.of[r].y : words.of[r].w,
                     group == 0 ? words.scales[r].x : words.scales[r].y);
    float part[4];
    MmaFrom(part, a.first, x.x, x.y, offsets);
    Mma(part, a.second, x.z, x.w);
    AddScaled(sums[r][0], part, make_uint2(__float_as_uint(a.low), __float_as_uint(a.high)));
  }
}

// The same of several token tiles: weights are scaled once for all of them, in bf16.
template <typename T>
__device__ inline void MultiplyGroupOften(const WeightWords<T>& words, int group, uint32_t x_at,
                                          Sums<T>& sums) {
  GroupFragments a[T::kRowBlocks];
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    a[r].MakeScaled(group == 0 ? words.of[r].x : words.of[r].z,
                    group == 0 ? words.of[r].y : words.of[r].w,
                    group == 0 ? words.scales[r].x : words.scales[r].y);
  }
#pragma unroll
  for (int t = 0; t < T::kTokenTiles; ++t) {
    const uint4 x = LoadShared16(x_at + t * 8 * T::kTokenStride);
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      Mma(sums[r][t], a[r].first, x.x, x.y);
      Mma(sums[r][t], a[r].second, x.z, x.w);
    }
  }
}

// A fragments of 32 features of a row block of fp8 weights.
struct Fp8Fragments {
  uint32_t first[4];
  uint32_t second[4];

  __device__ void Make(const uint4& words) {
    Fp8ToBf16(words.x, first[0], first[2]);
    Fp8ToBf16(words.y, first[1], first[3]);
    Fp8ToBf16(words.z, second[0], second[2]);
    Fp8ToBf16(words.w, second[1], second[3]);
  }
};

// Adds the products of 64 features of fp8 weights, whose rows share a scale over them.
template <typename T>
__device__ inline void MultiplyBlockFp8(uint32_t weights, uint32_t scales, uint32_t x0, uint32_t x1,
                                        Sums<T>& sums) {
  Fp8Fragments a[T::kRowBlocks][2];
  uint2 scale[T::kRowBlocks];
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    a[r][0].Make(LoadShared16(weights + r * T::kRowBlockBytes));
    a[r][1].Make(LoadShared16(weights + r * T::kRowBlockBytes + 512));
    scale[r] = LoadShared8(scales + r * T::kRowBlockBytes);
  }
#pragma unroll
  for (int t = 0; t < T::kTokenTiles; ++t) {
    const uint4 first = LoadShared16(x0 + t * 8 * T::kTokenStride);
    const uint4 second = LoadShared16(x1 + t * 8 * T::kTokenStride);
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      float part[4];
      MmaFirst(part, a[r][0].first, first.x, first.y);
      Mma(part, a[r][0].second, first.z, first.w);
      Mma(part, a[r][1].first, second.x, second.y);
      Mma(part, a[r][1].second, second.z, second.w);
      AddScaled(sums[r][t], part, scale[r]);
    }
  }
}

// A lane's fp4 scales of 64 features as bf16 pairs of scale * 2^118 (nvfp4) or * 2^110 (mxfp4): of
// row g and of row g + 8, the first 32 features' in the low half, the last 32's in the high one.
// Codes are 2^126 too small.
template <WeightFormat kFormat>
__device__ inline uint2 Fp4Scales(uint32_t bytes) {
  const uint32_t low = bytes & 0x00FF00FFu;
  const uint32_t high = bytes >> 8 & 0x00FF00FFu;
  return kFormat == WeightFormat::kNvfp4
             ? make_uint2(low * 16 + 0x77007700u, high * 16 + 0x77007700u)
             : make_uint2(low * 128 + 0x37003700u, high * 128 + 0x37003700u);
}

// Adds the products of 64 features of fp4 weights: unpacked to bf16 with their scales, exactly, but
// for a power of two and the tensor's scale that end in sum_scale.
template <typename T>
__device__ inline void MultiplyBlockFp4(uint32_t weights, uint32_t scales, uint32_t x0, uint32_t x1,
                                        Sums<T>& sums) {
  uint4 words[T::kRowBlocks];
  uint2 scale[T::kRowBlocks];
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    words[r] = LoadShared16(weights + r * T::kRowBlockBytes);
    scale[r] = Fp4Scales<T::kFormat>(LoadShared4(scales + r * T::kRowBlockBytes));
  }
#pragma unroll
  for (int group = 0; group < 2; ++group) {
    uint32_t first[T::kRowBlocks][4];
    uint32_t second[T::kRowBlocks][4];
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      const __nv_bfloat162 low = BroadcastHalf(scale[r].x, group);
      const __nv_bfloat162 high = BroadcastHalf(scale[r].y, group);
      Fp4ToBf16(group == 0 ? words[r].x : words[r].z, low, high, first[r]);
      Fp4ToBf16(group == 0 ? words[r].y : words[r].w, low, high, second[r]);
    }
#pragma unroll
    for (int t = 0; t < T::kTokenTiles; ++t) {
      const uint4 x = LoadShared16((group == 0 ? x0 : x1) + t * 8 * T::kTokenStride);
#pragma unroll
      for (int r = 0; r < T::kRowBlocks; ++r) {
        Mma(sums[r][t], first[r], x.x, x.y);
        Mma(sums[r][t], second[r], x.z, x.w);
      }
    }
  }
}

// The same of bf16 weights, 32 features.
template <typename T>
__device__ inline void MultiplyGroupBf16(uint32_t weights, uint32_t x_at, Sums<T>& sums) {
  uint4 a[T::kRowBlocks][2];
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    a[r][0] = LoadShared16(weights + r * T::kRowBlockBytes);
    a[r][1] = LoadShared16(weights + r * T::kRowBlockBytes + 512);
  }
#pragma unroll
  for (int t = 0; t < T::kTokenTiles; ++t) {
    const uint4 x = LoadShared16(x_at + t * 8 * T::kTokenStride);
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      const uint32_t first[4] = {a[r][0].x, a[r][0].y, a[r][0].z, a[r][0].w};
      const uint32_t second[4] = {a[r][1].x, a[r][1].y, a[r][1].z, a[r][1].w};
      Mma(sums[r][t], first, x.x, x.y);
      Mma(sums[r][t], second, x.z, x.w);
    }
  }
}

// Adds the products of 64 features of fp8 weights and fp8 tokens: four words of weights are an A
// fragment of m16n8k32 as they are. Sums are scaled by rows and by tokens.
template <typename T>
__device__ inline void MultiplyBlockFp8Tokens(uint32_t weights, uint32_t scales,
                                              const TokenAddresses& x, Sums<T>& sums) {
  uint4 a[T::kRowBlocks][2];
  uint2 scale[T::kRowBlocks];
#pragma unroll
  for (int r = 0; r < T::kRowBlocks; ++r) {
    a[r][0] = LoadShared16(weights + r * T::kRowBlockBytes);
    a[r][1] = LoadShared16(weights + r * T::kRowBlockBytes + 512);
    scale[r] = LoadShared8(scales + r * T::kRowBlockBytes);
  }
#pragma unroll
  for (int t = 0; t < T::kTokenTiles; ++t) {
    const uint32_t at = t * 8 * T::kTokenStride;
    const uint2 first = LoadShared8(x.first + at);
    const uint2 second = LoadShared8(x.second + at);
    const float even = __uint_as_float(LoadShared4(x.scales + at));
    const float odd = __uint_as_float(LoadShared4(x.scales + at + T::kTokenStride));
#pragma unroll
    for (int r = 0; r < T::kRowBlocks; ++r) {
      float part[4];
      MmaFp8First(part, a[r][0], first.x, first.y);
      MmaFp8(part, a[r][1], second.x, second.y);
      part[0] *= even;
      part[1] *= odd;
      part[2] *= even;
      part[3] *= odd;
      AddScaled(sums[r][t], part, scale[r]);
    }
  }
}

// Adds the products of a block of 64 features.
template <typename T>
__device__ inline void MultiplyBlock(uint32_t weights, uint32_t scales, const TokenAddresses& x,
                                     const MinusOffset& minus, Sums<T>& sums) {
  if constexpr (T::kFp8Tokens) {
    MultiplyBlockFp8Tokens<T>(weights, scales, x, sums);
  } else if constexpr (T::kFormat == WeightFormat::kBf16) {
    MultiplyGroupBf16<T>(weights, x.first, sums);
    MultiplyGroupBf16<T>(weights + 1024, x.second, sums);
  } else if constexpr (T::kFormat == WeightFormat::kFp8Block) {
    MultiplyBlockFp8<T>(weights, scales, x.first, x.second, sums);
  } else if constexpr (T::kIsFp4) {
    MultiplyBlockFp4<T>(weights, scales, x.first, x.second, sums);
  } else {
    WeightWords<T> words;
    words.Load(weights, scales);
    if constexpr (T::kTokenTiles == 1) {
      MultiplyGroupOnce<T>(words, 0, x.first, minus, sums);
      MultiplyGroupOnce<T>(words, 1, x.second, minus, sums);
    } else {
      MultiplyGroupOften<T>(words, 0, x.first, sums);
      MultiplyGroupOften<T>(words, 1, x.second, sums);
    }
  }
}

// The tokens of the warp's block `b` of a stage.
template <typename T>
__device__ inline TokenAddresses TokensOfBlock(const StageAddresses& at, int b) {
  if constexpr (T::kFp8Tokens) {
    const uint32_t block = b / 2 * kQuantizedBlockBytes;
    const uint32_t first = at.tokens + block + b % 2 * 64;
    return {first, first + 32, at.token_scales + block};
  } else {
    const uint32_t first = at.tokens + 128 * b;
    return {first, first + 64, 0};
  }
}

// The products of a warp's part of a stage of which all blocks are whole.
template <typename T>
__device__ inline void MultiplyStage(const StageAddresses& at, const MinusOffset& minus,
                                     Sums<T>& sums) {
#pragma unroll
  for (int b = 0; b < T::kKBlocks; ++b) {
    const uint32_t block = b / T::kBlockK64 * T::kBlockBytes;
    const uint32_t half = b % T::kBlockK64 * T::kHalfBytes;
    MultiplyBlock<T>(at.weights + block + half, at.scales + block, TokensOfBlock<T>(at, b), minus,
                     sums);
  }
}

// The same where features end: `features` are left from the warp's first block on, and lanes past
// them read the zeros behind the token's row, at `zeros`. fp8 tokens end with a block of 128.
template <typename T>
__device__ inline void MultiplyLastStage(const StageAddresses& at, uint32_t zeros, int features,
                                         int lane, const MinusOffset& minus, Sums<T>& sums) {
#pragma unroll 1
  for (int b = 0; b < T::kKBlocks && 64 * b < features; ++b) {
    const uint32_t block = b / T::kBlockK64 * T::kBlockBytes;
    const uint32_t half = b % T::kBlockK64 * T::kHalfBytes;
    TokenAddresses x = TokensOfBlock<T>(at, b);
    if constexpr (!T::kFp8Tokens) {
      const int first = 64 * b + 8 * (lane % 4);
      x.first = first < features ? x.first : zeros;
      x.second = first + 32 < features ? x.second : zeros;
    }
    MultiplyBlock<T>(at.weights + block + half, at.scales + block, x, minus, sums);
  }
}

// Where a lane's scales are in a panel block.
template <typename T>
__device__ inline int ScalesOffset(int lane) {
  const int g = lane / 4;
  switch (T::kFormat) {
    case WeightFormat::kInt4G32:
      return 512 + 8 * g;
    case WeightFormat::kInt4G128:
      return 1024 + 4 * g;
    case WeightFormat::kFp8Block:
      return 2048;
    case WeightFormat::kNvfp4:
      return 512 + 8 * g + lane % 4 / 2 * 4;
    case WeightFormat::kMxfp4:
      return 512 + 4 * g;
    default:
      return 0;
  }
}

}  // namespace grouped_gemm
}  // namespace lastflop
