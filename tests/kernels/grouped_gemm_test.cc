#include "kernels/grouped_gemm/grouped_gemm.h"

#include <cmath>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/grouped_gemm/tile_schedule.h"
#include "kernels/tolerance.h"
#include "tests/kernels/moe_case.h"

namespace lastflop {
namespace {

ExpertGemmShape GateUpShape(const MoeCase& moe) {
  return {.num_tokens = moe.sizes.num_tokens,
          .top_k = moe.sizes.top_k,
          .num_local_experts = moe.sizes.num_local_experts,
          .out_features = 2 * moe.sizes.intermediate,
          .in_features = moe.sizes.hidden_size,
          .gather_tokens = true,
          .storage = moe.gate_up.layout.storage};
}

ExpertGemmShape DownShape(const MoeCase& moe) {
  return {.num_tokens = moe.sizes.num_tokens,
          .top_k = moe.sizes.top_k,
          .num_local_experts = moe.sizes.num_local_experts,
          .out_features = moe.sizes.hidden_size,
          .in_features = moe.sizes.intermediate,
          .gather_tokens = false,
          .storage = moe.down.layout.storage};
}

// The error of the kernel against the reference; fails on writes past the last pair.
double Error(const ExpertGemmShape& shape, const MoeCase& moe, const Matrices& matrices,
             const std::vector<Bf16>& in, ThreadPool& pool) {
  EXPECT_TRUE(ValidateGroupedGemm(shape).ok());
  const auto columns = static_cast<size_t>(shape.out_columns());
  const size_t used = static_cast<size_t>(moe.pairs.num_pairs()) * columns;
  std::vector<Bf16> out = PoisonedBf16(used + 2 * columns);
  AlignedBuffer workspace = PoisonedWorkspace(GroupedGemmWorkspaceBytes(shape, matrices.layout));
  GroupedGemm(shape, moe.pairs, matrices.view(), in, out,
              workspace.As<std::byte>(workspace.bytes()), pool);
  for (size_t i = used; i < out.size(); ++i) {
    EXPECT_EQ(out[i].bits, 0xFFFF) << "wrote past the last pair";
  }
  std::vector<float> reference(used);
  GroupedGemmReference(shape, moe.pairs, matrices.rows(), in, {}, reference);
  return RowError(std::span<const Bf16>(out).first(used), reference, shape.out_columns());
}

// gate_up and down of a case, with every order, on every pool.
void ExpectAgreement(const MoeCase& moe, double gate_up_limit, double down_limit) {
  const std::vector<Bf16> act =
      RandomBf16(static_cast<size_t>(moe.pairs.num_pairs() * moe.sizes.intermediate), /*seed=*/77);
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    for (const auto& [order, group_m] : std::vector<std::pair<TileOrder, int64_t>>{
             {TileOrder::kRowMajor, 0}, {TileOrder::kRowMajor, 2}, {TileOrder::kColumnMajor, 0}}) {
      SCOPED_TRACE(absl::StrCat("threads=", pool_case.num_threads, " isa=", Describe(pool_case.isa),
                                " order=", ToWord(order), " group_m=", group_m));
      ExpertGemmShape gate_up = GateUpShape(moe);
      gate_up.tile_order = order;
      gate_up.group_m = group_m;
      EXPECT_LE(Error(gate_up, moe, moe.gate_up, moe.in, *pool), gate_up_limit);
      gate_up.swiglu = true;
      EXPECT_LE(Error(gate_up, moe, moe.gate_up, moe.in, *pool), 2 * gate_up_limit);
      ExpertGemmShape down = DownShape(moe);
      down.tile_order = order;
      down.group_m = group_m;
      EXPECT_LE(Error(down, moe, moe.down, act, *pool), down_limit);
    }
  }
}

class GroupedGemmTest : public testing::TestWithParam<WeightFormat> {};

INSTANTIATE_TEST_SUITE_P(Formats, GroupedGemmTest,
                         testing::Values(WeightFormat::kBf16, WeightFormat::kInt4G32,
                                         WeightFormat::kInt4G128),
                         [](const auto& format) { return std::string(ToWord(format.param)); });

TEST_P(GroupedGemmTest, AgreesWithTheReferenceOnRandomInput) {
  const MoeSizes sizes = {.num_tokens = 13,
                          .top_k = 3,
                          .num_experts = 7,
                          .num_local_experts = 7,
                          .hidden_size = 256,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/1);
  ExpectAgreement(*moe, Tolerance(1, 256), Tolerance(1, 128));
}

TEST_P(GroupedGemmTest, IsExactWhereEverySumIsExact) {
  // |sum| <= 128 * 7 and even more rarely above 256, where bf16 still holds multiples of 2 or 4:
  // the reference is rounded likewise, and nothing else may differ.
  const MoeSizes sizes = {.num_tokens = 5,
                          .top_k = 2,
                          .num_experts = 4,
                          .num_local_experts = 4,
                          .hidden_size = 128,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/true, /*seed=*/2);
  const ExpertGemmShape shape = GateUpShape(*moe);
  const auto size = static_cast<size_t>(moe->pairs.num_pairs() * shape.out_features);
  std::vector<float> reference(size);
  GroupedGemmReference(shape, moe->pairs, moe->gate_up.rows(), moe->in, {}, reference);
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    std::vector<Bf16> out = PoisonedBf16(size);
    AlignedBuffer workspace =
        PoisonedWorkspace(GroupedGemmWorkspaceBytes(shape, moe->gate_up.layout));
    GroupedGemm(shape, moe->pairs, moe->gate_up.view(), moe->in, out,
                workspace.As<std::byte>(workspace.bytes()), *pool);
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(out[i], ToBf16(reference[i])) << "at " << i;
    }
  }
}

TEST_P(GroupedGemmTest, HandlesOneTokenAndExpertsWithoutTokens) {
  const MoeSizes sizes = {.num_tokens = 1,
                          .top_k = 2,
                          .num_experts = 16,
                          .num_local_experts = 16,
                          .hidden_size = 128,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/3);
  ExpectAgreement(*moe, Tolerance(1, 128), Tolerance(1, 128));
}

TEST_P(GroupedGemmTest, HandlesEveryTokenAtOneExpert) {
  // 61 rows: two full m-tiles and a rest that no pass divides.
  const MoeSizes sizes = {.num_tokens = 61,
                          .top_k = 1,
                          .num_experts = 3,
                          .num_local_experts = 3,
                          .hidden_size = 128,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/4);
  moe->Route(std::vector<int32_t>(61, 1));
  ExpectAgreement(*moe, Tolerance(1, 128), Tolerance(1, 128));
}

TEST_P(GroupedGemmTest, WritesNothingOnARankWithoutPairs) {
  const MoeSizes sizes = {.num_tokens = 4,
                          .top_k = 2,
                          .num_experts = 8,
                          .first_expert = 4,
                          .num_local_experts = 4,
                          .hidden_size = 128,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/5);
  moe->Route({0, 1, 2, 3, 0, 2, 1, 3});
  EXPECT_EQ(moe->pairs.num_pairs(), 0);
  ExpectAgreement(*moe, 0, 0);
}

TEST_P(GroupedGemmTest, GivesNanForANanInput) {
  const MoeSizes sizes = {.num_tokens = 2,
                          .top_k = 1,
                          .num_experts = 1,
                          .num_local_experts = 1,
                          .hidden_size = 128,
                          .intermediate = 128};
  const auto moe = MakeMoeCase(sizes, GetParam(), /*integers=*/false, /*seed=*/6);
  moe->in[5] = Bf16{0xFFFF};
  const ExpertGemmShape shape = GateUpShape(*moe);
  for (const PoolCase& pool_case : AllPools()) {
    const std::unique_ptr<ThreadPool> pool = MakePool(pool_case);
    std::vector<Bf16> out(static_cast<size_t>(2 * shape.out_features));
    AlignedBuffer workspace =
        PoisonedWorkspace(GroupedGemmWorkspaceBytes(shape, moe->gate_up.layout));
    GroupedGemm(shape, moe->pairs, moe->gate_up.view(), moe->in, out,
                workspace.As<std::byte>(workspace.bytes()), *pool);
    EXPECT_TRUE(std::isnan(ToFloat(out[0])));
    EXPECT_TRUE(std::isfinite(ToFloat(out[static_cast<size_t>(shape.out_features)])));
  }
}

TEST(GroupedGemmOddSizesTest, HandlesSizesThatNoTileDivides) {
  // 40 and 17 rows, 96 and an odd 17 columns: only bf16 has no group that must divide them.
  for (const auto& [hidden, intermediate] : {std::pair<int64_t, int64_t>{96, 40}, {33, 17}}) {
    const MoeSizes sizes = {.num_tokens = 9,
                            .top_k = 2,
                            .num_experts = 5,
                            .first_expert = 1,
                            .num_local_experts = 3,
                            .hidden_size = hidden,
                            .intermediate = intermediate};
    const auto moe = MakeMoeCase(sizes, WeightFormat::kBf16, /*integers=*/false, /*seed=*/7);
    ExpectAgreement(*moe, Tolerance(1, hidden), Tolerance(1, intermediate));
  }
  const MoeSizes sizes = {.num_tokens = 9,
                          .top_k = 2,
                          .num_experts = 5,
                          .first_expert = 1,
                          .num_local_experts = 3,
                          .hidden_size = 96,
                          .intermediate = 32};
  const auto moe = MakeMoeCase(sizes, WeightFormat::kInt4G32, /*integers=*/false, /*seed=*/8);
  ExpectAgreement(*moe, Tolerance(1, 96), Tolerance(1, 32));
}

TEST(GroupedGemmReferenceTest, ComputesASmallCaseByHand) {
  // Two experts of 2x2; token 0 goes to expert 1, token 1 to expert 0.
  const ExpertGemmShape shape = {.num_tokens = 2,
                                 .top_k = 1,
                                 .num_local_experts = 2,
                                 .out_features = 2,
                                 .in_features = 2,
                                 .gather_tokens = true};
  const std::vector<std::vector<float>> weights = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
  const auto rows = [&](int64_t matrix, int64_t row, std::span<float> out) {
    const std::vector<float>& from = weights[static_cast<size_t>(matrix * 2 + row)];
    std::copy(from.begin(), from.end(), out.begin());
  };
  std::vector<int32_t> offsets = {0, 1, 2};
  std::vector<int32_t> token = {1, 0};
  std::vector<float> weight = {1, 1};
  std::vector<int32_t> pair_of = {1, 0};
  const PairList pairs = {offsets, token, weight, pair_of};
  const std::vector<Bf16> in = {ToBf16(1), ToBf16(10), ToBf16(-1), ToBf16(2)};
  std::vector<float> out(4);
  GroupedGemmReference(shape, pairs, rows, in, {}, out);
  // Pair 0 is token 1 at expert 0: -1 + 4, -3 + 8; pair 1 is token 0 at expert 1: 5 + 60, 7 + 80.
  EXPECT_THAT(out, testing::ElementsAre(3, 5, 65, 87));
  const std::vector<int64_t> sample = {1};
  std::vector<float> sampled(2);
  GroupedGemmReference(shape, pairs, rows, in, sample, sampled);
  EXPECT_THAT(sampled, testing::ElementsAre(5, 87));
}

TEST(GroupedGemmReferenceTest, AppliesSwigluToTheSumsOfGateAndUp) {
  // One expert: gate is rows 0 and 1, up rows 2 and 3.
  const ExpertGemmShape shape = {.num_tokens = 1,
                                 .top_k = 1,
                                 .num_local_experts = 1,
                                 .out_features = 4,
                                 .in_features = 1,
                                 .gather_tokens = true,
                                 .swiglu = true};
  const std::vector<float> weights = {0, 2, 5, 3};
  const auto rows = [&](int64_t /*matrix*/, int64_t row, std::span<float> out) {
    out[0] = weights[static_cast<size_t>(row)];
  };
  std::vector<int32_t> offsets = {0, 1};
  std::vector<int32_t> token = {0};
  std::vector<float> weight = {1};
  std::vector<int32_t> pair_of = {0};
  const std::vector<Bf16> in = {ToBf16(1)};
  std::vector<float> out(2);
  GroupedGemmReference(shape, {offsets, token, weight, pair_of}, rows, in, {}, out);
  EXPECT_EQ(out[0], 0);  // silu(0) * 5
  EXPECT_FLOAT_EQ(out[1], 2.0f / (1.0f + std::exp(-2.0f)) * 3);
}

TEST(GroupedGemmConfigTest, RefusesWhatTheCpuBackendHasNot) {
  ExpertGemmShape shape = {
      .num_tokens = 1, .top_k = 1, .num_local_experts = 1, .out_features = 16, .in_features = 32};
  EXPECT_TRUE(ValidateGroupedGemm(shape).ok());
  shape.group_m = 4;
  EXPECT_TRUE(ValidateGroupedGemm(shape).ok());
  shape.tile_order = TileOrder::kColumnMajor;
  EXPECT_EQ(ValidateGroupedGemm(shape).code(), absl::StatusCode::kInvalidArgument);
  shape.group_m = 0;
  shape.activations = ActivationFormat::kFp8;
  EXPECT_EQ(ValidateGroupedGemm(shape).code(), absl::StatusCode::kUnimplemented);
  shape.activations = ActivationFormat::kBf16;
  shape.storage.format = WeightFormat::kNvfp4;
  EXPECT_EQ(ValidateGroupedGemm(shape).code(), absl::StatusCode::kUnimplemented);
}

TEST(TileScheduleTest, CoversEveryTileOnceInTheOrderAsked) {
  // Expert 0 has 5 rows (3 m-tiles of 2), expert 1 none, expert 2 one.
  const std::vector<int32_t> offsets = {0, 5, 5, 6};
  std::vector<int64_t> tile_begin(4);
  const auto tiles_of = [&](TileOrder order, int64_t group_m) {
    TileSchedule schedule(offsets, /*m_tile=*/2, /*num_n=*/2, order, group_m, tile_begin);
    schedule.Prepare();
    std::vector<std::string> tiles;
    size_t expert = 0;
    for (int64_t i = 0; i < schedule.num_tiles(); ++i) {
      const TileSchedule::Tile tile = schedule.Find(i, expert);
      tiles.push_back(
          absl::StrCat(tile.expert, ":", tile.row_begin, "-", tile.row_end, "/", tile.n));
    }
    return tiles;
  };
  EXPECT_THAT(tiles_of(TileOrder::kRowMajor, 0),
              testing::ElementsAre("0:0-2/0", "0:0-2/1", "0:2-4/0", "0:2-4/1", "0:4-5/0", "0:4-5/1",
                                   "2:5-6/0", "2:5-6/1"));
  EXPECT_THAT(tiles_of(TileOrder::kRowMajor, 2),
              testing::ElementsAre("0:0-2/0", "0:2-4/0", "0:0-2/1", "0:2-4/1", "0:4-5/0", "0:4-5/1",
                                   "2:5-6/0", "2:5-6/1"));
  EXPECT_THAT(tiles_of(TileOrder::kColumnMajor, 0),
              testing::ElementsAre("0:0-2/0", "0:2-4/0", "0:4-5/0", "0:0-2/1", "0:2-4/1", "0:4-5/1",
                                   "2:5-6/0", "2:5-6/1"));
}

}  // namespace
}  // namespace lastflop
