#include "kernels/fused_moe/fused_moe.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tolerance.h"
#include "tests/kernels/moe_case.h"

namespace lastflop {
namespace {

FusedMoeShape ShapeOf(const MoeCase& moe) {
  return {.num_tokens = moe.sizes.num_tokens,
          .top_k = moe.sizes.top_k,
          .num_local_experts = moe.sizes.num_local_experts,
          .hidden_size = moe.sizes.hidden_size,
          .moe_intermediate_size = moe.sizes.intermediate,
          .storage = moe.gate_up.layout.storage};
}

// Act and output are rounded to bf16; the rounding of act (2^-8 of each value) stays that size.
double Limit(const MoeCase& moe) {
  return Tolerance(2, std::max(moe.sizes.hidden_size, moe.sizes.intermediate));
}

// Compares with the reference on every pool, in both orders, with and without shared output.
void ExpectAgreement(const MoeCase& moe) {
  const std::vector<Bf16> shared = RandomBf16(moe.in.size(), /*seed=*/99);
  for (const bool add_shared : {false, true}) {
    FusedMoeShape shape = ShapeOf(moe);
    shape.add_shared = add_shared;
    ASSERT_TRUE(ValidateFusedMoe(shape).ok());
    const std::span<const Bf16> used_shared =
        add_shared ? std::span<const Bf16>(shared) : std::span<const Bf16>();
    std::vector<float> reference(moe.in.size());
    FusedMoeReference(shape, moe.pairs, moe.gate_up.rows(), moe.down.rows(), moe.in, used_shared,
                      {}, reference);
    for (const PoolCase& pool_case : AllPools()) {
      const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
      for (const TileOrder order : {TileOrder::kRowMajor, TileOrder::kColumnMajor}) {
        SCOPED_TRACE(absl::StrCat("threads=", pool_case.num_threads,
                                  " isa=", Describe(pool_case.isa), " order=", ToWord(order),
                                  " shared=", add_shared));
        shape.tile_order = order;
        std::vector<Bf16> out = PoisonedBf16(moe.in.size());
        AlignedBuffer workspace =
            PoisonedWorkspace(FusedMoeWorkspaceBytes(shape, moe.gate_up.layout, moe.down.layout));
        FusedMoe(shape, moe.pairs, moe.gate_up.view(), moe.down.view(), moe.in, used_shared, out,
                 workspace.As<std::byte>(workspace.bytes()), *pool);
        EXPECT_LE(RowError(out, reference, shape.hidden_size), Limit(moe));
      }
    }
  }
}

class FusedMoeTest : public testing::TestWithParam<WeightFormat> {};

INSTANTIATE_TEST_SUITE_P(Formats, FusedMoeTest,
                         testing::Values(WeightFormat::kBf16, WeightFormat::kInt4G32,
                                         WeightFormat::kInt4G128),
                         [](const auto& format) { return std::string(ToWord(format.param)); });

TEST_P(FusedMoeTest, AgreesWithTheReferenceOnRandomInput) {
  const MoeSizes sizes = {.num_tokens = 13,
                          .top_k = 3,
                          .num_experts = 7,
                          .num_local_experts = 7,
                          .hidden_size = 256,
                          .intermediate = 128};
  ExpectAgreement(*MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/1));
}

TEST_P(FusedMoeTest, HandlesOneTokenAndExpertsWithoutTokens) {
  const MoeSizes sizes = {.num_tokens = 1,
                          .top_k = 2,
                          .num_experts = 16,
                          .num_local_experts = 16,
                          .hidden_size = 128,
                          .intermediate = 128};
  ExpectAgreement(*MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/2));
}

TEST_P(FusedMoeTest, HandlesEveryTokenAtOneExpert) {
  const MoeSizes sizes = {.num_tokens = 61,
                          .top_k = 1,
                          .num_experts = 3,
                          .num_local_experts = 3,
                          .hidden_size = 128,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/3);
  moe->Route(std::vector<int32_t>(61, 2));
  ExpectAgreement(*moe);
}

TEST_P(FusedMoeTest, GivesTheSharedOutputOnARankWithoutPairs) {
  const MoeSizes sizes = {.num_tokens = 4,
                          .top_k = 2,
                          .num_experts = 8,
                          .first_expert = 4,
                          .num_local_experts = 4,
                          .hidden_size = 128,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/4);
  moe->Route({0, 1, 2, 3, 0, 2, 1, 3});
  ExpectAgreement(*moe);
}

TEST(FusedMoeOddSizesTest, HandlesSizesThatNoTileDivides) {
  for (const auto& [hidden, intermediate] : {std::pair<int64_t, int64_t>{96, 40}, {33, 17}}) {
    const MoeSizes sizes = {.num_tokens = 9,
                            .top_k = 2,
                            .num_experts = 5,
                            .first_expert = 1,
                            .num_local_experts = 3,
                            .hidden_size = hidden,
                            .intermediate = intermediate};
    ExpectAgreement(*MakeMoeCase(sizes, WeightFormat::kBf16, /*integers=*/false, /*seed=*/5));
  }
  const MoeSizes sizes = {.num_tokens = 9,
                          .top_k = 2,
                          .num_experts = 5,
                          .first_expert = 1,
                          .num_local_experts = 3,
                          .hidden_size = 96,
                          .intermediate = 96};
  ExpectAgreement(*MakeMoeCase(sizes, WeightFormat::kInt4G32, /*integers=*/false, /*seed=*/6));
}

TEST(FusedMoeOddSizesTest, HandlesMoreTokensThanOneBlockOfSums) {
  const MoeSizes sizes = {.num_tokens = 1100,
                          .top_k = 2,
                          .num_experts = 3,
                          .num_local_experts = 3,
                          .hidden_size = 64,
                          .intermediate = 32};
  ExpectAgreement(*MakeMoeCase(sizes, WeightFormat::kInt4G32, /*integers=*/false, /*seed=*/7));
}

TEST(FusedMoeReferenceTest, ComputesASmallCaseByHand) {
  // One expert with hidden 1 and intermediate 1: gate 2, up 3, down 5; weight 0.5; shared 1.
  const FusedMoeShape shape = {.num_tokens = 1,
                               .top_k = 1,
                               .num_local_experts = 1,
                               .hidden_size = 1,
                               .moe_intermediate_size = 1,
                               .add_shared = true};
  const auto gate_up = [](int64_t, int64_t row, std::span<float> out) {
    out[0] = row == 0 ? 2.0f : 3.0f;
  };
  const auto down = [](int64_t, int64_t, std::span<float> out) { out[0] = 5.0f; };
  std::vector<int32_t> offsets = {0, 1};
  std::vector<int32_t> token = {0};
  std::vector<float> weight = {0.5f};
  std::vector<int32_t> pair_of = {0};
  const std::vector<Bf16> in = {ToBf16(1)};
  const std::vector<Bf16> shared = {ToBf16(1)};
  std::vector<float> out(1);
  FusedMoeReference(shape, {offsets, token, weight, pair_of}, gate_up, down, in, shared, {}, out);
  EXPECT_NEAR(out[0], 1 + 0.5 * 5 * (2 / (1 + std::exp(-2.0)) * 3), 1e-5);
}

TEST(FusedMoeConfigTest, RefusesWhatTheCpuBackendHasNot) {
  FusedMoeShape shape = {.num_tokens = 1,
                         .top_k = 1,
                         .num_local_experts = 1,
                         .hidden_size = 32,
                         .moe_intermediate_size = 32};
  EXPECT_TRUE(ValidateFusedMoe(shape).ok());
  shape.storage.format = WeightFormat::kMxfp4;
  EXPECT_EQ(ValidateFusedMoe(shape).code(), absl::StatusCode::kUnimplemented);
  shape.storage.format = WeightFormat::kBf16;
  shape.num_local_experts = 0;
  EXPECT_EQ(ValidateFusedMoe(shape).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lastflop
