#include <cstring>

#include "kernels/attention/attention_builds.h"
#include "kernels/cpu/vector.h"

namespace lastflop {
namespace {

// Rows x positions of a tile of scores, and rows x vectors of a tile of output, keep this many
// sums in registers: enough to hide the latency of a multiply-add.
constexpr int kSums = 8;

__m256 LoadTail(const Bf16* in, int64_t count) {
  Bf16 values[8] = {};
  std::memcpy(values, in, static_cast<size_t>(count) * sizeof(Bf16));
  return LoadBf16x8(values);
}

// The sums of the lanes of eight vectors, in their order.
__m256 SumEight(const __m256 (&v)[kSums]) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
  const __m256 low = _mm256_permute2f128_ps(a, b, 0x20);
  const __m256 high = _mm256_permute2f128_ps(a, b, 0x31);
  return _mm256_add_ps(low, high);
}

// Scores of kRows rows from `row` on with kSums / kRows positions from `position` on. Positions
// past the block are read as the last one; whoever uses the scores masks them.
template <int kRows>
void ScoreTile(const AttentionBlock& block, int64_t row, int64_t position) {
  constexpr int kPositions = kSums / kRows;
  const int64_t padded = PaddedWidth(block.key_width);
  const float* const query = block.query + row * padded;
  const Bf16* keys[kPositions];
  for (int s = 0; s < kPositions; ++s) {
    const int64_t at = position + s < block.num_positions ? position + s : block.num_positions - 1;
    keys[s] = block.keys + at * block.key_stride;
  }
  __m256 sums[kSums];
  for (__m256& sum : sums) {
    sum = _mm256_setzero_ps();
  }
  int64_t d = 0;
  for (; d + 8 <= block.key_width; d += 8) {
    __m256 key[kPositions];
    for (int s = 0; s < kPositions; ++s) {
      key[s] = LoadBf16x8(keys[s] + d);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m256 q = _mm256_loadu_ps(query + r * padded + d);
      for (int s = 0; s < kPositions; ++s) {
        sums[r * kPositions + s] = _mm256_fmadd_ps(q, key[s], sums[r * kPositions + s]);
      }
    }
  }
  if (d < block.key_width) {
    for (int s = 0; s < kPositions; ++s) {
      const __m256 key = LoadTail(keys[s] + d, block.key_width - d);
      for (int r = 0; r < kRows; ++r) {
        const __m256 q = _mm256_loadu_ps(query + r * padded + d);
        sums[r * kPositions + s] = _mm256_fmadd_ps(q, key, sums[r * kPositions + s]);
      }
    }
  }
  alignas(32) float scores[kSums];
  _mm256_store_ps(scores, SumEight(sums));
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(block.scores + (row + r) * kBlockPositions + position, scores + r * kPositions,
                kPositions * sizeof(float));
  }
}

template <int kRows>
void ScoreRows(const AttentionBlock& block, int64_t row) {
  for (int64_t s = 0; s < block.num_positions; s += kSums / kRows) {
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
  for (int i = 0; i < kVectors; ++i) {
    const __m256i left = _mm256_set1_epi32(static_cast<int>(visible) - 8 * i);
    const __m256 is_seen = _mm256_castsi256_ps(_mm256_cmpgt_epi32(left, lanes));
    v[i] = _mm256_blendv_ps(least, _mm256_loadu_ps(scores + 8 * i), is_seen);
    max = _mm256_max_ps(max, v[i]);
  }
  const float new_max = MaxLanes(max);
  const __m256 shift = _mm256_set1_ps(new_max);
  __m256 sum = _mm256_setzero_ps();
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
  for (int r = 0; r < kRows; ++r) {
    const __m256 decay = _mm256_broadcast_ss(block.decay + row + r);
    for (int v = 0; v < kVectors; ++v) {
      const float* const out = block.out + (row + r) * padded + column + 8 * v;
      sums[r][v] = _mm256_mul_ps(_mm256_loadu_ps(out), decay);
    }
  }
  const float* const weights = block.scores + row * kBlockPositions;
  for (int64_t s = 0; s < block.num_positions; ++s) {
    const Bf16* const values = block.values + s * block.value_stride + column;
    __m256 value[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      value[v] = tail != 8 ? LoadTail(values, tail) : LoadBf16x8(values + 8 * v);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m256 weight = _mm256_broadcast_ss(weights + r * kBlockPositions + s);
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = _mm256_fmadd_ps(weight, value[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
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
  const __m256i magnitudes = _mm256_set1_epi32(0x7F);
  const __m256 power = _mm256_set1_ps(0x1p120f);
  int64_t i = 0;
  Fp8 padded_in[8] = {};
  Bf16 padded_out[8];
  for (; i < count; i += 8) {
    const Fp8* from = in + i;
    Bf16* to = out + i;
    if (i + 8 > count) {
      std::memcpy(padded_in, from, static_cast<size_t>(count - i));
      from = padded_in;
      to = padded_out;
    }
    const __m256i bits =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    const __m256i magnitude = _mm256_and_si256(bits, magnitudes);
    const __m256i sign = _mm256_slli_epi32(_mm256_xor_si256(bits, magnitude), 24);
    // The fields as those of an fp32 stand for a value 2^120 times smaller (kernels/cpu/fp8.h).
    const __m256 value =
        _mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(magnitude, 20)), power);
    const __m256i is_nan = _mm256_cmpeq_epi32(magnitude, magnitudes);
    __m256i result = _mm256_or_si256(_mm256_castps_si256(value), sign);
    result = _mm256_or_si256(result, _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7FC00000)));
    // Three bits of mantissa: nothing is rounded.
    result = _mm256_srli_epi32(result, 16);
    const __m128i packed =
        _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), packed);
    if (to == padded_out) {
      std::memcpy(out + i, padded_out, static_cast<size_t>(count - i) * sizeof(Bf16));
    }
  }
}

}  // namespace lastflop
