#include "kernels/head_gemm/head_gemm.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/aligned_buffer.h"
#include "kernels/tolerance.h"
#include "tests/kernels/dense_case.h"

namespace lastflop {
namespace {

using testing::ElementsAre;

TEST(HeadGemmTest, GivesEachHeadItsOwnMatrixByHand) {
  const HeadGemmShape shape = {.num_tokens = 1,
                               .num_heads = 2,
                               .out_features = 1,
                               .in_features = 2,
                               .in_stride = 3,
                               .out_stride = 2};
  std::vector<float> out = {-1, -1, -1, -1};
  HeadGemmReference(
      shape,
      [](int64_t head, int64_t, std::span<float> to) {
        to[0] = static_cast<float>(head + 1);
        to[1] = 10;
      },
      Bf16s({1, 2, 99, 3, 4, 99}), out);
  EXPECT_THAT(out, ElementsAre(21, -1, 46, -1));
}

TEST(HeadGemmTest, AgreesWithItsReferenceAndLeavesTheGapsAlone) {
  for (const NamedPool& named : EveryPool()) {
    for (const int64_t num_tokens : {0, 1, 9, 130}) {
      for (const int64_t num_heads : {1, 3}) {
        const HeadGemmShape shape = {.num_tokens = num_tokens,
                                     .num_heads = num_heads,
                                     .out_features = 50,
                                     .in_features = 72,
                                     .in_stride = 80,
                                     .out_stride = 57};
        ASSERT_TRUE(ValidateHeadGemm(shape).ok());
        const PackedLayout layout = PackedLayout::Create({}, num_heads, {50}, 72).value();
        AlignedBuffer data = AlignedBuffer::Create(layout.bytes()).value();
        const PackedWeights weights = {.layout = &layout, .data = data.data()};
        for (int64_t head = 0; head < num_heads; ++head) {
          PackMatrix(layout, head, Floats(RandomValues(50 * 72, 5 + static_cast<uint64_t>(head))),
                     data.data());
        }
        const std::vector<Bf16> in = RandomValues(num_tokens * num_heads * 80, 1);
        std::vector<Bf16> out = RandomValues(num_tokens * num_heads * 57, 2);
        std::vector<float> reference = Floats(out);
        HeadGemmReference(
            shape,
            [&](int64_t m, int64_t row, std::span<float> to) { UnpackRow(weights, m, row, to); },
            in, reference);
        HeadGemm(shape, weights, in, out, *named.pool);
        EXPECT_LE(RowError(out, reference, 57), Tolerance(1, 72))
            << named.name << " tokens=" << num_tokens << " heads=" << num_heads;
        for (size_t i = 50; i < out.size(); i += 57) {
          ASSERT_EQ(ToFloat(out[i]), reference[i]);
        }
      }
    }
  }
}

TEST(HeadGemmTest, RefusesStridesThatDoNotHoldTheirFeatures) {
  EXPECT_FALSE(ValidateHeadGemm({.num_tokens = 1,
                                 .num_heads = 1,
                                 .out_features = 4,
                                 .in_features = 4,
                                 .in_stride = 3,
                                 .out_stride = 4})
                   .ok());
}

}  // namespace
}  // namespace lastflop
