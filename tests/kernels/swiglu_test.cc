#include "kernels/swiglu/swiglu.h"

#include <cmath>

#include "gtest/gtest.h"
#include "kernels/tolerance.h"
#include "tests/kernels/moe_case.h"

namespace lastflop {
namespace {

TEST(SwigluReferenceTest, ComputesASmallCaseByHand) {
  const ActivationShape shape = {.rows = 1, .intermediate_size = 2};
  const std::vector<Bf16> in = {ToBf16(0), ToBf16(2), ToBf16(3), ToBf16(-4)};
  std::vector<float> out(2);
  SwigluReference(shape, nullptr, in, out);
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_NEAR(out[1], 2 / (1 + std::exp(-2.0)) * -4, 1e-5);
}

TEST(SwigluTest, AgreesWithTheReferenceAtEverySizeAndRange) {
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    for (const int64_t size : {1, 8, 17, 384, 5000}) {
      const ActivationShape shape = {.rows = 7, .intermediate_size = size};
      std::vector<Bf16> in = RandomBf16(static_cast<size_t>(7 * 2 * size), /*seed=*/1);
      in[0] = ToBf16(-100.0f);  // exp(100) overflows: silu is 0 there.
      in[static_cast<size_t>(2 * size)] = ToBf16(100.0f);
      std::vector<float> reference(static_cast<size_t>(7 * size));
      SwigluReference(shape, nullptr, in, reference);
      std::vector<Bf16> out = PoisonedBf16(reference.size());
      Swiglu(shape, nullptr, in, out, *pool);
      EXPECT_LE(RowError(out, reference, size), Tolerance(1, 1)) << "size " << size;
    }
  }
}

TEST(SwigluTest, WorksOnAsManyRowsAsThereArePairs) {
  std::vector<int32_t> offsets = {0, 1, 2};
  const PairList pairs = {.offsets = offsets, .token = {}, .weight = {}, .pair_of = {}};
  const ActivationShape shape = {.rows = 4, .intermediate_size = 8, .rows_are_pairs = true};
  const std::unique_ptr<ThreadPool> pool = MakePool({DetectVectorIsa(), 2});
  const std::vector<Bf16> in = RandomBf16(4 * 16, /*seed=*/2);
  std::vector<Bf16> out = PoisonedBf16(4 * 8);
  Swiglu(shape, &pairs, in, out, *pool);
  EXPECT_NE(out[15].bits, 0xFFFF);
  EXPECT_EQ(out[16].bits, 0xFFFF);
}

}  // namespace
}  // namespace lastflop
