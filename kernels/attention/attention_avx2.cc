#include <cstring>

#include "kernels/attention/attention_builds.h"
#include "kernels/cpu/vector.h"

namespace lastflop {
namespace {

// Makes the compiler load a value once. GCC 12 otherwise loads it again for each product, and a
// core loads two vectors a cycle.
inline void KeepLoaded(__m256& value) { asm volatile("" : "+x"(value)); }

// Rows x positions of a tile of scores, and rows x vectors of a tile of output, keep this many
// sums in registers: enough to hide the latency of a multiply-add.
constexpr int kSums = 8;

__m256 LoadTail(const Bf16* in, int64_t count) {
  Bf16 values[8] = {};
  std::memcpy(values, in, static_cast<size_t>(count) * sizeof(Bf16));
  return LoadBf16x8(values);
}

// The sums of the lanes of eight vectors, in their order.
inline __m256 SumEight(const __m256 (&v)[kSums]) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
  const __m256 low = _mm256_permute2f128_ps(a, b, 0x20);
  const __m256 high = _mm256_permute2f128_ps(a, b, 0x31);
  return _mm256_add_ps(low, high);
}

// Scores of kRows rows from `row` on with kSums / kRows positions from `position` on. Positions
// past the block are read as the last one; whoever uses the scores masks them.
template <int kRows>
inline __attribute__((always_inline)) void ScoreTile(const AttentionBlock& block, int64_t row,
                                                     int64_t position) {
  constexpr int kPositions = kSums / kRows;
  const int64_t padded = PaddedWidth(block.key_width);
  const float* const query = block.query + row * padded;
  const Bf16* keys[kPositions];
#pragma GCC unroll 8
  for (int s = 0; s < kPositions; ++s) {
    const int64_t at = position + s < block.num_positions ? position + s : block.num_positions - 1;
    keys[s] = block.keys + at * block.key_stride;
  }
  __m256 sums[kSums];
#pragma GCC unroll 8
  for (int i = 0; i < kSums; ++i) {
    sums[i] = _mm256_setzero_ps();
  }
  int64_t d = 0;
  for (; d + 8 <= block.key_width; d += 8) {
    __m256 key[kPositions];
#pragma GCC unroll 8
    for (int s = 0; s < kPositions; ++s) {
      key[s] = LoadBf16x8(keys[s] + d);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      __m256 q = _mm256_loadu_ps(query + r * padded + d);
      KeepLoaded(q);
#pragma GCC unroll 8
      for (int s = 0; s < kPositions; ++s) {
        sums[r * kPositions + s] = _mm256_fmadd_ps(q, key[s], sums[r * kPositions + s]);
      }
    }
  }
  if (d < block.key_width) {
#pragma GCC unroll 8
    for (int s = 0; s < kPositions; ++s) {
      const __m256 key = LoadTail(keys[s] + d, block.key_width - d);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m256 q = _mm256_loadu_ps(query + r * padded + d);
        sums[r * kPositions + s] = _mm256_fmadd_ps(q, key, sums[r * kPositions + s]);
      }
    }
  }
  alignas(32) float scores[kSums];
  _mm256_store_ps(scores, SumEight(sums));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(block.scores + (row + r) * kBlockPositions + position, scores + r * kPositions,
                kPositions * sizeof(float));
  }
}

// Asks for what the next block reads where this one read position `position`. The rows of a KV head
// lie apart, which the hardware follows late.
void PrefetchNext(const Bf16* rows, int64_t stride, int64_t width, int64_t position) {
  const auto* const at =
      reinterpret_cast<const char*>(rows + (position + kBlockPositions) * stride);
  for (int64_t byte = 0; byte < width * 2; byte += 64) {
    _mm_prefetch(at + byte, _MM_HINT_T1);
  }
}

// The first rows of a block ask for the next one's keys and values.
template <int kRows>
void ScoreRows(const AttentionBlock& block, int64_t row) {
  constexpr int64_t kPositions = kSums / kRows;
  for (int64_t s = 0; s < block.num_positions; s += kPositions) {
    for (int64_t i = s; row == 0 && block.streams && i < s + kPositions; ++i) {
      PrefetchNext(block.keys, block.key_stride, block.key_width, i);
      if (block.values != block.keys) {
        PrefetchNext(block.values, block.value_stride, block.value_width, i);
      }
    }
    ScoreTile<kRows>(block, row, s);
  }
}

// From scores to weights in place; moves maximum and sum on and leaves what earlier output is to be
// multiplied with in `decay`. Positions that the row does not see get weight 0.
void SoftmaxRow(const AttentionBlock& block, int64_t row) {
  float* const scores = block.scores + row * kBlockPositions;
  int64_t visible = block.num_visible[row];
  visible = visible < block.num_positions ? visible : block.num_positions;
  if (visible <= 0) {
    std::memset(scores, 0, kBlockPositions * sizeof(float));
    block.decay[row] = 1;
    return;
  }
  constexpr int kVectors = kBlockPositions / 8;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 least = _mm256_set1_ps(-__builtin_inff());
  __m256 v[kVectors];
  __m256 max = _mm256_set1_ps(block.max[row]);
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const __m256i left = _mm256_set1_epi32(static_cast<int>(visible) - 8 * i);
    const __m256 is_seen = _mm256_castsi256_ps(_mm256_cmpgt_epi32(left, lanes));
    v[i] = _mm256_blendv_ps(least, _mm256_loadu_ps(scores + 8 * i), is_seen);
    max = _mm256_max_ps(max, v[i]);
  }
  const float new_max = MaxLanes(max);
  const __m256 shift = _mm256_set1_ps(new_max);
  __m256 sum = _mm256_setzero_ps();
#pragma GCC unroll 8
  for (int i = 0; i < kVectors; ++i) {
    const __m256 weight = Exp(_mm256_sub_ps(v[i], shift));
    _mm256_storeu_ps(scores + 8 * i, weight);
    sum = _mm256_add_ps(sum, weight);
  }
  const __m256 decay = Exp(_mm256_set1_ps(block.max[row] - new_max));
  block.decay[row] = _mm256_cvtss_f32(decay);
  block.sum[row] = block.sum[row] * block.decay[row] + SumLanes(sum);
  block.max[row] = new_max;
}

// Output of kRows rows in kVectors vectors of columns from `column` on. `tail` is how many columns
// the last vector has when that is not 8.
template <int kRows, int kVectors>
void ValueTile(const AttentionBlock& block, int64_t row, int64_t column, int64_t tail) {
  const int64_t padded = PaddedWidth(block.value_width);
  __m256 sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const __m256 decay = _mm256_broadcast_ss(block.decay + row + r);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const float* const out = block.out + (row + r) * padded + column + 8 * v;
      sums[r][v] = _mm256_mul_ps(_mm256_loadu_ps(out), decay);
    }
  }
  const float* const weights = block.scores + row * kBlockPositions;
  for (int64_t s = 0; s < block.num_positions; ++s) {
    const Bf16* const values = block.values + s * block.value_stride + column;
    __m256 value[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      value[v] = tail != 8 ? LoadTail(values, tail) : LoadBf16x8(values + 8 * v);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const __m256 weight = _mm256_broadcast_ss(weights + r * kBlockPositions + s);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm256_fmadd_ps(weight, value[v], sums[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      _mm256_storeu_ps(block.out + (row + r) * padded + column + 8 * v, sums[r][v]);
    }
  }
}

template <int kRows>
void ValueRows(const AttentionBlock& block, int64_t row) {
  constexpr int kVectors = kSums / kRows;
  int64_t column = 0;
  for (; column + 8 * kVectors <= block.value_width; column += 8 * kVectors) {
    ValueTile<kRows, kVectors>(block, row, column, 8);
  }
  for (; column + 8 <= block.value_width; column += 8) {
    ValueTile<kRows, 1>(block, row, column, 8);
  }
  if (column < block.value_width) {
    ValueTile<kRows, 1>(block, row, column, block.value_width - column);
  }
}

}  // namespace

void AttendBlockAvx2(const AttentionBlock& block) {
  int64_t row = 0;
  for (; row + 4 <= block.num_rows; row += 4) {
    ScoreRows<4>(block, row);
  }
  for (; row + 2 <= block.num_rows; row += 2) {
    ScoreRows<2>(block, row);
  }
  for (; row < block.num_rows; ++row) {
    ScoreRows<1>(block, row);
  }
  for (row = 0; row < block.num_rows; ++row) {
    SoftmaxRow(block, row);
  }
  for (row = 0; row + 4 <= block.num_rows; row += 4) {
    ValueRows<4>(block, row);
  }
  for (; row + 2 <= block.num_rows; row += 2) {
    ValueRows<2>(block, row);
  }
  for (; row < block.num_rows; ++row) {
    ValueRows<1>(block, row);
  }
}

void Fp8ToBf16Avx2(const Fp8* in, int64_t count, Bf16* out) {
  const __m128i fields = _mm_set1_epi16(static_cast<int16_t>(0xBF80));
  const __m128i all_ones = _mm_set1_epi16(0x3F80);
  const __m256 power = _mm256_set1_ps(256.0f);
  for (int64_t i = 0; i < count; i += 8) {
    const auto left = static_cast<size_t>(count - i < 8 ? count - i : 8);
    Fp8 tail[8] = {};
    const Fp8* from = in + i;
    if (left < 8) {
      std::memcpy(tail, from, left);
      from = tail;
    }
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
    // The fields as those of an fp16 stand for a value 2^8 times smaller; the conversion from fp16
    // takes subnormals at full speed, where a product with an fp32 subnormal would not.
    __m128i half = _mm_and_si128(_mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7), fields);
    const __m128i is_nan = _mm_cmpeq_epi16(_mm_and_si128(half, all_ones), all_ones);
    half = _mm_or_si128(half, _mm_and_si128(is_nan, _mm_set1_epi16(0x7E00)));
    const __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(half), power);
    // Three bits of mantissa: nothing is rounded.
    const __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(value), 16);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    if (left == 8) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), packed);
      continue;
    }
    Bf16 values[8];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(values), packed);
    std::memcpy(out + i, values, left * sizeof(Bf16));
  }
}

}  // namespace lastflop
