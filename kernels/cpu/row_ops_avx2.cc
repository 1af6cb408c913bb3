#include <cmath>
#include <cstring>

#include "kernels/cpu/row_ops_builds.h"
#include "kernels/cpu/vector.h"

namespace lastflop {
namespace {

__m256 Load8(const float* in) { return _mm256_loadu_ps(in); }
__m256 Load8(const Bf16* in) { return LoadBf16x8(in); }

// Fewer than 8 values, zeros after them.
template <typename T>
__m256 LoadTail(const T* in, int64_t count) {
  T values[8] = {};
  std::memcpy(values, in, static_cast<size_t>(count) * sizeof(T));
  return Load8(values);
}

void StoreTail(__m256 value, int64_t count, Bf16* out) {
  Bf16 values[8];
  StoreBf16x8(value, values);
  std::memcpy(out, values, static_cast<size_t>(count) * sizeof(Bf16));
}

template <typename T>
void AddScaledImpl(float scale, const T* in, int64_t size, float* acc) {
  const __m256 factor = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    _mm256_storeu_ps(acc + i, _mm256_fmadd_ps(factor, Load8(in + i), _mm256_loadu_ps(acc + i)));
  }
  if (i < size) {
    float sums[8];
    const __m256 old = LoadTail(acc + i, size - i);
    _mm256_storeu_ps(sums, _mm256_fmadd_ps(factor, LoadTail(in + i, size - i), old));
    std::memcpy(acc + i, sums, static_cast<size_t>(size - i) * sizeof(float));
  }
}

__m256 SiluMul8(__m256 gate, __m256 up) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 exp = Exp(_mm256_sub_ps(_mm256_setzero_ps(), gate));
  return _mm256_mul_ps(_mm256_div_ps(gate, _mm256_add_ps(one, exp)), up);
}

template <typename T>
void SiluMulImpl(const T* gate, const T* up, int64_t size, Bf16* out) {
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    StoreBf16x8(SiluMul8(Load8(gate + i), Load8(up + i)), out + i);
  }
  if (i < size) {
    StoreTail(SiluMul8(LoadTail(gate + i, size - i), LoadTail(up + i, size - i)), size - i,
              out + i);
  }
}

}  // namespace

void StorePanelAvx2(const float* tile, int64_t num_rows, int64_t num_cols, Bf16* out,
                    int64_t out_stride) {
  for (int64_t i = 0; i < num_rows; ++i, tile += 16, out += out_stride) {
    if (num_cols == 16) {
      StoreBf16x8(_mm256_loadu_ps(tile), out);
      StoreBf16x8(_mm256_loadu_ps(tile + 8), out + 8);
      continue;
    }
    for (int64_t j = 0; j < num_cols; j += 8) {
      StoreTail(_mm256_loadu_ps(tile + j), num_cols - j < 8 ? num_cols - j : 8, out + j);
    }
  }
}

void AddScaledAvx2(float scale, const float* in, int64_t size, float* acc) {
  AddScaledImpl(scale, in, size, acc);
}

void AddScaledAvx2(float scale, const Bf16* in, int64_t size, float* acc) {
  AddScaledImpl(scale, in, size, acc);
}

void StoreRowAvx2(const float* in, int64_t size, Bf16* out) {
  int64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    StoreBf16x8(_mm256_loadu_ps(in + i), out + i);
  }
  if (i < size) {
    StoreTail(LoadTail(in + i, size - i), size - i, out + i);
  }
}

void SiluMulAvx2(const float* gate, const float* up, int64_t size, Bf16* out) {
  SiluMulImpl(gate, up, size, out);
}

void SiluMulAvx2(const Bf16* gate, const Bf16* up, int64_t size, Bf16* out) {
  SiluMulImpl(gate, up, size, out);
}

}  // namespace lastflop
