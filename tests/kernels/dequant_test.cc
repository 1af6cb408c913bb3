#include "kernels/dequant/dequant.h"

#include "gtest/gtest.h"
#include "kernels/grouped_gemm/grouped_gemm.h"
#include "kernels/tolerance.h"
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

TEST(DequantTest, FeedsTheBf16GroupedGemm) {
  const MoeSizes sizes = {.num_tokens = 6,
                          .top_k = 2,
                          .num_experts = 5,
                          .num_local_experts = 5,
                          .hidden_size = 256,
                          .intermediate = 64};
  const auto moe = MakeMoeCase(sizes, WeightFormat::kInt4G32, /*integers=*/false, /*seed=*/3);
  const PackedLayout bf16_layout =
      PackedLayout::Create(Storage(WeightFormat::kBf16), 5, moe->gate_up.layout.part_rows, 256)
          .value();
  const ExpertGemmShape shape = {.num_tokens = 6,
                                 .top_k = 2,
                                 .num_local_experts = 5,
                                 .out_features = 128,
                                 .in_features = 256,
                                 .gather_tokens = true};
  const auto size = static_cast<size_t>(moe->pairs.num_pairs() * shape.out_features);
  std::vector<float> reference(size);
  GroupedGemmReference(shape, moe->pairs, moe->gate_up.rows(), moe->in, {}, reference);
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    AlignedBuffer weights = PoisonedWorkspace(static_cast<int64_t>(bf16_layout.bytes()));
    Dequant({.num_local_experts = 5,
             .out_features = 128,
             .in_features = 256,
             .storage = moe->gate_up.layout.storage},
            moe->pairs, moe->gate_up.view(), bf16_layout, weights.data(), *pool);
    std::vector<Bf16> out = PoisonedBf16(size);
    AlignedBuffer workspace = PoisonedWorkspace(GroupedGemmWorkspaceBytes(shape, bf16_layout));
    GroupedGemm(shape, moe->pairs, {.layout = &bf16_layout, .data = weights.data()}, moe->in, out,
                workspace.As<std::byte>(workspace.bytes()), *pool);
    // Weights are rounded once more than the fused way, then the output.
    EXPECT_LE(RowError(out, reference, shape.out_features), Tolerance(2, 256));
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
