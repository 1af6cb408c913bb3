#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "gpu/dependent_launch.cuh"

// Instructions that CUDA C++ has no word for. Names of sections are those of the PTX ISA.
namespace lastflop {

__device__ inline uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ld.shared: words at a shared address. They come after the waits before them.
__device__ inline uint4 LoadShared16(uint32_t at) {
  uint4 out;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "r"(at));
  return out;
}
__device__ inline uint2 LoadShared8(uint32_t at) {
  uint2 out;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(out.x), "=r"(out.y) : "r"(at));
  return out;
}
__device__ inline uint32_t LoadShared4(uint32_t at) {
  uint32_t out;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(out) : "r"(at));
  return out;
}

// ---- Barriers in shared memory ------------------------------------------------------------------

// mbarrier.init: `count` arrivals complete a phase.
__device__ inline void InitBarrier(uint32_t barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// mbarrier.arrive: releases what the thread wrote before.
__device__ inline void Arrive(uint32_t barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 state;\n"
      "mbarrier.arrive.shared.b64 state, [%0];\n"
      "}\n" ::"r"(barrier)
      : "memory");
}

// mbarrier.test_wait.parity (mbarrier.try_wait.parity from sm_90 on): returns when the phase of
// `parity` has completed.
__device__ inline void WaitBarrier(uint32_t barrier, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
#else
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

// ---- Copies from global to shared memory --------------------------------------------------------

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// mbarrier.arrive.expect_tx: one arrival that also announces `bytes` of copies.
__device__ inline void ArriveExpecting(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// cp.async.bulk: `bytes` (a multiple of 16) from global memory, completing on `barrier`.
__device__ inline void BulkCopy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
// The same with an L2 policy (createpolicy).
__device__ inline void BulkCopy(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
#endif

// cp.async: 16 bytes.
__device__ inline void CopyAsync16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ inline void CopyAsync16(uint32_t to, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "l"(policy)
               : "memory");
}
// cp.async.mbarrier.arrive.noinc: arrives when the thread's copies before it are complete.
__device__ inline void ArriveAfterCopies(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// createpolicy: the L2 priority of lines that a copy reads.
__device__ inline uint64_t EvictFirstPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline uint64_t EvictLastPolicy() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// ---- Barriers of some warps of a block ----------------------------------------------------------

// bar.sync: `num_threads` threads of the block meet at barrier `index` (1 to 15).
__device__ inline void MeetThreads(int index, int num_threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(index), "r"(num_threads) : "memory");
}

// ---- Matrix products ----------------------------------------------------------------------------

// mma.m16n8k16: d += a * b in fp32.
__device__ inline void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// mma.m16n8k16: d = a * b + c.
__device__ inline void MmaFrom(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                               const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%11,%12,%13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

// mma.m16n8k16: d = a * b.
__device__ inline void MmaFirst(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

// mma.m16n8k32 of e4m3 in fp32: d += a * b, and d = a * b. Not before sm_89.
__device__ inline void MmaFp8(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
      "{%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
#else
  (void)d, (void)a, (void)b0, (void)b1;
  __trap();
#endif
}
__device__ inline void MmaFp8First(float (&d)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  d[0] = d[1] = d[2] = d[3] = 0;
  MmaFp8(d, a, b0, b1);
}

// movmatrix: transposes an 8x8 matrix of 16-bit elements whose row g is held, two a lane, by lanes
// 4 g to 4 g + 3.
__device__ inline uint32_t Transpose8x8(uint32_t row) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(row));
  return out;
}

// ---- Numbers ------------------------------------------------------------------------------------

// Nibble i of both halves to bf16 pairs of 128 + nibble: a nibble under the mantissa of 128.0
// (0x4300). lop3: (x & 0x000F000F) | 0x43004300 is table 0xEA.
__device__ inline void NibblesPlus128(uint32_t word, uint32_t (&a)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm("lop3.b32 %0, %1, %2, %3, 0xEA;"
        : "=r"(a[i])
        : "r"(word >> (4 * i)), "r"(0x000F000Fu), "r"(0x43004300u));
  }
}

// Nibble i of both halves to bf16 pairs of the value: nibble - 8, exact.
__device__ inline void NibblesToValues(uint32_t word, uint32_t (&a)[4]) {
  NibblesPlus128(word, a);
  const __nv_bfloat162 offset = __float2bfloat162_rn(136.0f);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 value = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&a[i]), offset);
    a[i] = *reinterpret_cast<const uint32_t*>(&value);
  }
}

// A product of bf16 pairs, rounded.
__device__ inline uint32_t MultiplyPairs(uint32_t a, __nv_bfloat162 b) {
  const __nv_bfloat162 product = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), b);
  return *reinterpret_cast<const uint32_t*>(&product);
}

// Four e4m3 to two bf16 pairs, exact: bytes 1 and 3, and bytes 0 and 2. Their fields, read as those
// of bf16, stand for values 2^120 times smaller; so do subnormals. NaN is not kept.
__device__ inline void Fp8ToBf16(uint32_t word, uint32_t& upper, uint32_t& lower) {
  const uint32_t u = (word & 0x80008000u) | ((word >> 4) & 0x07F007F0u);
  const uint32_t l = ((word << 8) & 0x80008000u) | ((word << 4) & 0x07F007F0u);
  const __nv_bfloat162 power = __float2bfloat162_rn(0x1p120f);
  upper = MultiplyPairs(u, power);
  lower = MultiplyPairs(l, power);
}

// The low (`half` 0) or high half of a bf16 pair in both halves: an operand's modifier, no
// instruction.
__device__ inline __nv_bfloat162 BroadcastHalf(uint32_t pair, int half) {
  const auto both = *reinterpret_cast<const __nv_bfloat162*>(&pair);
  return half == 0 ? __low2bfloat162(both) : __high2bfloat162(both);
}

// e2m1 codes of both halves (kernels/cuda/panel.h) times 2^-126 times `low` (registers 0 and 2) or
// `high` (1 and 3).
__device__ inline void Fp4ToBf16(uint32_t word, __nv_bfloat162 low, __nv_bfloat162 high,
                                 uint32_t (&a)[4]) {
  constexpr uint32_t kCode = 0x81C081C0u;
  a[0] = MultiplyPairs(word & kCode, low);
  a[1] = MultiplyPairs(word << 3 & kCode, high);
  a[2] = MultiplyPairs(word << 6 & kCode, low);
  a[3] = MultiplyPairs(
      (word << 1 & 0x80008000u) | (word >> 5 & 0x01000100u) | (word >> 4 & 0x00C000C0u), high);
}

__device__ inline uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline float LowBf16(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ inline float HighBf16(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

}  // namespace lastflop
