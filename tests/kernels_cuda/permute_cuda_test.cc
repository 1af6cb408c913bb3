#include "kernels/permute/permute_cuda.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/kernels_cuda/moe_cuda_case.h"

namespace lastflop {
namespace {

void ExpectAsReference(const PermuteShape& shape, const std::vector<int32_t>& ids, int tile) {
  const RoutingCase routing(shape, tile, ids);
  PairBuffer buffer(shape);
  const PairList want = buffer.list();
  PermuteReference(shape, ids, routing.host_weights, want);
  const int64_t slots = shape.num_tokens * shape.top_k;
  const auto offsets = routing.Read(routing.pairs.offsets, shape.num_local_experts + 1);
  EXPECT_EQ(offsets, buffer.offsets);
  EXPECT_EQ(routing.Read(routing.pairs.pair_of, slots), buffer.pair_of);
  const int64_t pairs = want.num_pairs();
  buffer.token.resize(static_cast<size_t>(pairs));
  buffer.weight.resize(static_cast<size_t>(pairs));
  EXPECT_EQ(routing.Read(routing.pairs.token, pairs), buffer.token);
  EXPECT_EQ(routing.Read(routing.pairs.weight, pairs), buffer.weight);
  // Tiles cover the pairs in order and stay within their expert.
  const int num_tiles = routing.Read(routing.pairs.num_tiles, 1)[0];
  const auto tiles = routing.Read(routing.pairs.tiles, num_tiles);
  const auto prefix = routing.Read(routing.pairs.tile_prefix, shape.num_local_experts + 1);
  int next = 0;
  for (int t = 0; t < num_tiles; ++t) {
    const CudaTile& of = tiles[static_cast<size_t>(t)];
    ASSERT_EQ(of.begin, next) << "tile " << t;
    ASSERT_GE(of.count, 1);
    ASSERT_LE(of.count, tile);
    ASSERT_GE(of.begin, offsets[static_cast<size_t>(of.expert)]);
    ASSERT_LE(of.begin + of.count, offsets[static_cast<size_t>(of.expert) + 1]);
    ASSERT_EQ(of.first_tile, prefix[static_cast<size_t>(of.expert)]);
    next += of.count;
  }
  EXPECT_EQ(next, pairs);
  EXPECT_EQ(prefix.back(), num_tiles);
  EXPECT_LE(num_tiles, routing.pairs.max_tiles);
}

TEST(PermuteCudaTest, AgreesWithTheReferenceForAnyNumberOfTokens) {
  LASTFLOP_NEED_GPU();
  // Up to 16 tokens are few slots, from 513 on several blocks count.
  for (const int64_t tokens : {0, 1, 3, 8, 16, 17, 100, 512, 513, 5000, 37450}) {
    SCOPED_TRACE(tokens);
    ExpectAsReference(PermuteCase(tokens, 8, 384, 0, 384), RandomExperts(tokens, 8, 384, 5), 8);
  }
}

TEST(PermuteCudaTest, KeepsOnlyTheRanksExpertsAndUsedSlots) {
  LASTFLOP_NEED_GPU();
  for (const int64_t tokens : {7, 21, 700}) {
    std::vector<int32_t> ids = RandomExperts(tokens, 6, 100, 6);
    for (size_t i = 0; i < ids.size(); i += 5) {
      ids[i] = -1;
    }
    ExpectAsReference(PermuteCase(tokens, 6, 100, 37, 25), ids, 16);
  }
}

TEST(PermuteCudaTest, TakesAllTokensToOneExpertAndMoreExpertsThanPairs) {
  LASTFLOP_NEED_GPU();
  ExpectAsReference(PermuteCase(3000, 2, 9, 0, 9), std::vector<int32_t>(6000, 4), 64);
  ExpectAsReference(PermuteCase(1, 1, 1024, 0, 1024), {1023}, 8);
  // Few slots: several tiles of one expert, tiles that end inside and at a border, no expert here.
  for (const int tile : {8, 16, 64}) {
    ExpectAsReference(PermuteCase(64, 2, 9, 0, 9), std::vector<int32_t>(128, 4), tile);
    std::vector<int32_t> two(128, 5);
    std::fill_n(two.begin(), 37, 8);
    ExpectAsReference(PermuteCase(128, 1, 9, 5, 4), two, tile);
    ExpectAsReference(PermuteCase(16, 8, 9, 7, 1), two, tile);
    ExpectAsReference(PermuteCase(16, 8, 9, 0, 3), two, tile);
  }
}

TEST(PermuteCudaTest, RefusesMoreExpertsThanItScans) {
  EXPECT_EQ(CheckPermuteCuda(PermuteCase(1, 1, 1025, 0, 1025)).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(CheckPermuteCuda(PermuteCase(1, 1, 8, 4, 8)).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PermuteCudaTest, ChoosesTilesByTheModelsExpertsNotTheRanks) {
  EXPECT_EQ(PairTileTokens(PermuteCase(256, 8, 384, 0, 384), StorageOf(WeightFormat::kInt4G32)),
            PairTileTokens(PermuteCase(256, 8, 384, 48, 48), StorageOf(WeightFormat::kInt4G32)));
  // 5.3 pairs an expert: narrow tiles where instructions bind, wider ones where memory does.
  EXPECT_EQ(PairTileTokens(PermuteCase(256, 8, 384, 0, 384), StorageOf(WeightFormat::kInt4G32)), 8);
  EXPECT_EQ(PairTileTokens(PermuteCase(256, 8, 384, 0, 384), StorageOf(WeightFormat::kBf16)), 16);
}

}  // namespace
}  // namespace lastflop
