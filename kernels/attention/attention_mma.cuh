#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// The instructions that attention is made of, and fragments of its cache.
//
// Products are mma.m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): lane l has g = l / 4
// and q = l % 4. Registers of A: (row g, k 2q 2q+1), (row g + 8, same k), (row g, k 2q+8 2q+9),
// (row g + 8, same). Of B: (k 2q 2q+1, column g), (k 2q+8 2q+9, column g). Of the sum: (row g,
// columns 2q 2q+1), (row g + 8, same columns).
//
// An fp8 cache stays fp8 in shared memory and becomes bf16 in registers. ldmatrix moves 16-bit
// units, so a lane gets neighbouring pairs of fp8 values; both products are indifferent to an order
// of their inner or outer index that both sides share, and FeatureOf() is that order.
namespace lastflop::attention {

__device__ inline uint32_t SharedOffset(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory; zeros when not `is_valid`. PTX ISA, "cp.async".
__device__ inline void CopyOrZero16(uint32_t to, const void* from, bool is_valid) {
  const int bytes = is_valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n" ::"r"(to), "l"(from),
               "r"(bytes));
}
__device__ inline void CommitCopies() { asm volatile("cp.async.commit_group;\n" ::); }
template <int kLeft>
__device__ inline void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kLeft));
}

// Four 8x8 matrices of 16-bit units; lane l gives the address of row l % 8 of matrix l / 8. PTX
// ISA, "ldmatrix".
__device__ inline void LoadMatrices(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void LoadMatricesTransposed(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// sum += a b. PTX ISA, "mma".
__device__ inline void Multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x, 0 for -infinity. PTX ISA, "ex2".
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Four fp8 e4m3 values as two pairs of bf16, exact: the even bytes and the odd ones. The fields,
// read as those of a bf16, stand for a value 2^120 times smaller; so do subnormals. NaN becomes
// +-480.
__device__ inline uint32_t Fp8FieldsToBf16(uint32_t sign_bits, uint32_t field_bits) {
  const uint32_t small = (sign_bits & 0x80008000u) | (field_bits & 0x07F007F0u);
  const __nv_bfloat162 scale = __halves2bfloat162(__ushort_as_bfloat16(0x7B80),
                                                  __ushort_as_bfloat16(0x7B80));  // 2^120
  const __nv_bfloat162 value = __hmul2(reinterpret_cast<const __nv_bfloat162&>(small), scale);
  return reinterpret_cast<const uint32_t&>(value);
}
__device__ inline uint32_t EvenFp8ToBf16(uint32_t bytes) {
  return Fp8FieldsToBf16(bytes << 8, bytes << 4);
}
__device__ inline uint32_t OddFp8ToBf16(uint32_t bytes) {
  return Fp8FieldsToBf16(bytes, bytes >> 4);
}

// Registers of Q's A fragment: features of step s, for rows g and g + 8. Null rows are zeros.
template <bool kFp8>
__device__ inline void LoadQuery(const __nv_bfloat16* row0, const __nv_bfloat16* row1, int s, int q,
                                 int width, uint32_t (&a)[4]) {
  const __nv_bfloat16* const rows[2] = {row0, row1};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    uint2 words = {0, 0};
    if constexpr (kFp8) {
      // Bytes 4q .. 4q + 3 of 16: the even two and the odd two.
      const int d = 16 * s + 4 * q;
      if (rows[r] != nullptr && d < width) {
        const uint2 plain = *reinterpret_cast<const uint2*>(rows[r] + d);
        words = {__byte_perm(plain.x, plain.y, 0x5410), __byte_perm(plain.x, plain.y, 0x7632)};
      }
    } else {
      const int d = 16 * s + 2 * q;
      if (rows[r] != nullptr && d < width) {
        words.x = *reinterpret_cast<const uint32_t*>(rows[r] + d);
      }
      if (rows[r] != nullptr && d + 8 < width) {
        words.y = *reinterpret_cast<const uint32_t*>(rows[r] + d + 8);
      }
    }
    a[r] = words.x;
    a[2 + r] = words.y;
  }
}

// sums[n] += Q K^T for 16 positions (n = 0, 1: eight each) and 32 bytes of their keys: one step of
// features in bf16, two in fp8. `first`: address of this lane's row of ldmatrix, KeyRow() below.
template <bool kFp8, int kSteps>
__device__ inline void MultiplyKeys(float (&low)[4], float (&high)[4],
                                    const uint32_t (&query)[kSteps][4], int pair,
                                    uint32_t address) {
  uint32_t r[4];
  LoadMatrices(address, r);
  if constexpr (kFp8) {
    Multiply(low, query[2 * pair], EvenFp8ToBf16(r[0]), OddFp8ToBf16(r[0]));
    Multiply(high, query[2 * pair], EvenFp8ToBf16(r[2]), OddFp8ToBf16(r[2]));
    Multiply(low, query[2 * pair + 1], EvenFp8ToBf16(r[1]), OddFp8ToBf16(r[1]));
    Multiply(high, query[2 * pair + 1], EvenFp8ToBf16(r[3]), OddFp8ToBf16(r[3]));
  } else {
    Multiply(low, query[pair], r[0], r[1]);
    Multiply(high, query[pair], r[2], r[3]);
  }
}

// Rows and 16-byte columns that lane l addresses, of 16 positions and 32 bytes: for keys, matrices
// are (positions 0-7: columns 0, 1), (positions 8-15: columns 0, 1); for values, which are
// transposed, (column 0: positions 0-7, 8-15), (column 1: the same).
__device__ inline int KeyRow(int lane) { return lane / 16 * 8 + lane % 8; }
__device__ inline int KeyColumn(int lane) { return lane / 8 % 2; }
__device__ inline int ValueRow(int lane) { return lane / 8 % 2 * 8 + lane % 8; }
__device__ inline int ValueColumn(int lane) { return lane / 16; }

// Output tiles of 8 features that 32 bytes of values make.
template <bool kFp8>
inline constexpr int kTilesOf32Bytes = kFp8 ? 4 : 2;

// B fragments of 16 positions and 32 bytes of their values: tile n is b[n][0], b[n][1].
template <bool kFp8>
__device__ inline void LoadValues(uint32_t address, uint32_t (&b)[kTilesOf32Bytes<kFp8>][2]) {
  uint32_t r[4];
  LoadMatricesTransposed(address, r);
#pragma unroll
  for (int column = 0; column < 2; ++column) {
    if constexpr (kFp8) {
      b[2 * column][0] = EvenFp8ToBf16(r[2 * column]);
      b[2 * column][1] = EvenFp8ToBf16(r[2 * column + 1]);
      b[2 * column + 1][0] = OddFp8ToBf16(r[2 * column]);
      b[2 * column + 1][1] = OddFp8ToBf16(r[2 * column + 1]);
    } else {
      b[column][0] = r[2 * column];
      b[column][1] = r[2 * column + 1];
    }
  }
}

// What a lane has of a row's 16 features of output tiles 2p and 2p + 1, in the order of memory: two
// neighbours at offset[0] of the 16, two at offset[1]. In bf16 a tile is 8 features in their order;
// in fp8 the pair's first tile has the even features, the second the odd ones.
template <bool kFp8>
struct FeaturePairs {
  int offset[2];
  float2 values[2];

  __device__ FeaturePairs(int q, float even0, float even1, float odd0, float odd1)
      : offset{kFp8 ? 4 * q : 2 * q, kFp8 ? 4 * q + 2 : 2 * q + 8},
        values{kFp8 ? make_float2(even0, odd0) : make_float2(even0, even1),
               kFp8 ? make_float2(even1, odd1) : make_float2(odd0, odd1)} {}
};

}  // namespace lastflop::attention
