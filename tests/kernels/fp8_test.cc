#include "kernels/cpu/fp8.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/attention/attention_builds.h"
#include "kernels/rope/rope_builds.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

TEST(Fp8Test, ReadsTheLandmarksOfE4m3) {
  EXPECT_EQ(ToFloat(Fp8{0x00}), 0.0f);
  EXPECT_EQ(ToFloat(Fp8{0x01}), 0x1p-9f);  // The least subnormal.
  EXPECT_EQ(ToFloat(Fp8{0x07}), 7 * 0x1p-9f);
  EXPECT_EQ(ToFloat(Fp8{0x08}), 0x1p-6f);  // The least normal.
  EXPECT_EQ(ToFloat(Fp8{0x38}), 1.0f);
  EXPECT_EQ(ToFloat(Fp8{0xB8}), -1.0f);
  EXPECT_EQ(ToFloat(Fp8{0x7E}), 448.0f);
  EXPECT_TRUE(std::isnan(ToFloat(Fp8{0x7F})));
}

TEST(Fp8Test, RoundTripsEveryValue) {
  for (int bits = 0; bits < 256; ++bits) {
    const Fp8 value{static_cast<uint8_t>(bits)};
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(ToFloat(ToFp8(ToFloat(value)))));
    } else {
      EXPECT_EQ(ToFp8(ToFloat(value)), value) << bits;
    }
  }
}

TEST(Fp8Test, RoundsToNearestWithTiesToEvenAndStopsAt448) {
  EXPECT_EQ(ToFloat(ToFp8(1.0625f)), 1.0f);   // Halfway between 1 and 1.125.
  EXPECT_EQ(ToFloat(ToFp8(1.1875f)), 1.25f);  // Halfway between 1.125 and 1.25.
  EXPECT_EQ(ToFloat(ToFp8(1.07f)), 1.125f);
  EXPECT_EQ(ToFloat(ToFp8(0x1p-10f)), 0.0f);  // Half of the least subnormal.
  EXPECT_EQ(ToFloat(ToFp8(0x1.8p-10f)), 0x1p-9f);
  EXPECT_EQ(ToFloat(ToFp8(7.9f * 0x1p-9f)), 0x1p-6f);
  EXPECT_EQ(ToFloat(ToFp8(460.0f)), 448.0f);
  EXPECT_EQ(ToFloat(ToFp8(-1e30f)), -448.0f);
  EXPECT_EQ(ToFloat(ToFp8(INFINITY)), 448.0f);
}

TEST(Fp8Test, ConvertsInEveryBuildLikeTheScalarCode) {
  if (DetectVectorIsa() != VectorIsa::kAvx2) {
    GTEST_SKIP() << "this CPU has no AVX2";
  }
  // All bf16 patterns but NaN, in lengths that no vector divides.
  std::vector<Bf16> in;
  for (uint32_t bits = 0; bits < 0x10000; bits += 3) {
    if (const Bf16 value{static_cast<uint16_t>(bits)}; !std::isnan(ToFloat(value))) {
      in.push_back(value);
    }
  }
  const auto count = static_cast<int64_t>(in.size());
  std::vector<Fp8> plain(in.size());
  std::vector<Fp8> fast(in.size());
  Bf16ToFp8Portable(in.data(), count, plain.data());
  Bf16ToFp8Avx2(in.data(), count, fast.data());
  EXPECT_EQ(plain, fast);
  std::vector<Fp8> all(251);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = {static_cast<uint8_t>(i)};
  }
  all[0x7F] = Fp8{0x10};
  std::vector<Bf16> plain_back(all.size());
  std::vector<Bf16> fast_back(all.size());
  Fp8ToBf16Portable(all.data(), 251, plain_back.data());
  Fp8ToBf16Avx2(all.data(), 251, fast_back.data());
  EXPECT_EQ(plain_back, fast_back);
}

TEST(Fp8Test, KeepsNanInEveryBuild) {
  const Fp8 nan{0xFF};
  Bf16 out;
  Fp8ToBf16Portable(&nan, 1, &out);
  EXPECT_TRUE(std::isnan(ToFloat(out)));
  if (DetectVectorIsa() == VectorIsa::kAvx2) {
    out = {};
    Fp8ToBf16Avx2(&nan, 1, &out);
    EXPECT_TRUE(std::isnan(ToFloat(out)));
  }
}

}  // namespace
}  // namespace lastflop
