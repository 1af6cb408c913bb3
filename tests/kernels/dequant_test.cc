#include "kernels/dequant/dequant.h"

#include "gtest/gtest.h"
#include "tests/kernels/moe_case.h"

namespace lastflop {
namespace {

// Every stored weight of touched experts is the reference's, bit for bit.
void ExpectExact(const MoeCase& moe, const Matrices& matrices, ThreadPool& pool) {
  const DequantShape shape = {.num_local_experts = moe.sizes.num_local_experts,
                              .out_features = matrices.layout.rows,
                              .in_features = matrices.layout.cols,
                              .storage = matrices.layout.storage};
  ASSERT_TRUE(ValidateDequant(shape).ok());
  const PackedLayout out_layout =
      PackedLayout::Create(Storage(WeightFormat::kBf16), moe.sizes.num_local_experts,
                           matrices.layout.part_rows, matrices.layout.cols)
          .value();
  AlignedBuffer out = PoisonedWorkspace(static_cast<int64_t>(out_layout.bytes()));
  Dequant(shape, moe.pairs, matrices.view(), out_layout, out.data(), pool);
  const PackedWeights out_weights = {.layout = &out_layout, .data = out.data()};
  std::vector<float> expected(static_cast<size_t>(shape.in_features));
  std::vector<float> actual(expected.size());
  for (int64_t expert = 0; expert < shape.num_local_experts; ++expert) {
    const auto e = static_cast<size_t>(expert);
    const bool touched = moe.pairs.offsets[e] != moe.pairs.offsets[e + 1];
    for (int64_t row = 0; row < shape.out_features; ++row) {
      DequantReference(shape, matrices.rows(), expert, row, expected);
      UnpackRow(out_weights, expert, row, actual);
      if (touched) {
        ASSERT_EQ(actual, expected) << "expert " << expert << " row " << row;
      } else {
        ASSERT_TRUE(std::isnan(actual[0])) << "wrote an expert without pairs";
      }
    }
  }
}

TEST(DequantTest, WritesExactlyTheTouchedExperts) {
  for (const WeightFormat format : {WeightFormat::kInt4G32, WeightFormat::kInt4G128}) {
    const MoeSizes sizes = {.num_tokens = 2,
                            .top_k = 2,
                            .num_experts = 9,
                            .num_local_experts = 9,
                            .hidden_size = 256,
                            .intermediate = 128};
    const auto moe = MakeMoeCase(sizes, format, /*integers=*/false, /*seed=*/1);
    for (const PoolCase& pool_case : AllPools()) {
      const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
      ExpectExact(*moe, moe->gate_up, *pool);
      ExpectExact(*moe, moe->down, *pool);
    }
  }
}

TEST(DequantTest, HandlesRowsThatNoPanelDivides) {
  const MoeSizes sizes = {.num_tokens = 1,
                          .top_k = 1,
                          .num_experts = 2,
                          .num_local_experts = 2,
                          .hidden_size = 40,
                          .intermediate = 32};
  auto moe = std::make_unique<MoeCase>();
  moe->sizes = sizes;
  moe->down = RandomMatrices(WeightFormat::kInt4G32, 2, {40}, 32, /*integers=*/false, /*seed=*/2);
  moe->weights = {1.0f};
  moe->Route({1});
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    ExpectExact(*moe, moe->down, *pool);
  }
}

TEST(DequantTest, RefusesWeightsThatAreNotQuantized) {
  EXPECT_EQ(ValidateDequant({.num_local_experts = 1, .out_features = 16, .in_features = 16}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
